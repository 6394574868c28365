"""The command line: its commands, their arguments and help, and tab completion."""
