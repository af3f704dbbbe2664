"""The machine around the translator: the command line, the terminal, files and the hub."""
