"""The machine around the model: the command line, the terminal, devices, processes, files and the hub."""
