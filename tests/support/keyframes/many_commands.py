"""Run many command lines of focus-eval in one process, each as its user would, and tell what each printed."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Ran:
    """What a command line came to.

    Args:
        code: 0 on success, 2 for an error meant for the user, 70 for a traceback.
        started: seconds since the epoch.
    """

    arguments: list[str]
    code: int
    out: str
    err: str
    seconds: float
    started: float


def run_commands(commands: list[list[str]]) -> Iterator[Ran]:
    """Run `focus-eval ARGUMENTS` for each, in this process, one after the other."""
    return map(_run, commands)


def without_progress(errors: str) -> str:
    """Return the lines on standard error without those of steps that take a busy machine more than a second."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("loading the ", "uniform on ")))


def _run(arguments: list[str]) -> Ran:
    """Run one command line and return what it printed and its exit code, 70 if it ended with an exception."""
    from focus_eval import cli

    out, err = io.StringIO(), io.StringIO()
    at, started, own_arguments = time.time(), time.perf_counter(), sys.argv
    sys.argv = ["focus-eval", *arguments]
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:  # noqa: BLE001 - the next command must run, as it would in a shell
            code = 70
            err.write(traceback.format_exc())
        finally:
            sys.argv = own_arguments
    seconds = time.perf_counter() - started
    return Ran(arguments, code if isinstance(code, int) else 1, out.getvalue(), err.getvalue(), seconds, at)


def main() -> None:
    """Read a list of command lines as JSON, write each result as a line to the file named on the command line."""
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for item in run_commands(json.load(sys.stdin)):
            file.write(json.dumps(asdict(item)) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
