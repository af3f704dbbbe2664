"""The machine around a training: devices, the processes that train together, and the state files that it reads."""
