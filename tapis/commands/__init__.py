"""The commands of the package, each of which `python -m tapis` and a command of a checkout run."""
