"""The machine around a run: devices, the processes that train together, and the state files that it reads."""
