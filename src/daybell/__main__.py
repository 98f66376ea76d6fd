"""Lets `python -m daybell` stand in for the `daybell` command."""

from daybell.cli import main

if __name__ == "__main__":
    main()
