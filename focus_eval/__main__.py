"""Runs the command line as `python -m focus_eval`."""

from focus_eval.cli import main

main()
