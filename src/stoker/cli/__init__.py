"""The command line: one file a command group, loaded only when its command is asked for."""
