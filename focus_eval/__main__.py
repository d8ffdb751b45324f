"""What does `python -m focus_eval` run? The command line."""

from focus_eval.cli import main

main()
