"""Runs the command line, as `focus-eval` and as `python -m focus_eval`."""

import sys


def main() -> None:
    """Run the command line; an interrupt while its code still loads ends it with code 130, as a later one does."""
    try:
        from focus_eval.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
