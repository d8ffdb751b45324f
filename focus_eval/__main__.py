"""Runs the command line, as `focus-eval` and as `python -m focus_eval`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C exits with code 130, also while the code is still loading."""
    try:
        from focus_eval.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
