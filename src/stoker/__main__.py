"""`python -m stoker` is the command line."""

from stoker.cli.main import main

main()
