"""Runs a command line, each time in a fork of one warm process, and kills it in the middle of writing a row.

`python -m support.killed_at_row IMPORTS MODULE ARGUMENTS`; each line of the standard input is the number of rows after
which the next run kills itself, so that no run is over before a kill from outside comes, or "never". The run's exit
code is printed once it has ended. `IMPORTS` (modules, commas between) are loaded before the first fork.
"""

from __future__ import annotations

import itertools
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from focus_eval.rows.records import AnswerRow, RowWriter, SelectionRow


@contextmanager
def killed_runs(
    imports: Sequence[str], command: Sequence[str], *, log: Path, **options: Any
) -> Iterator[Callable[[int | None], int]]:
    """Yield a function that runs `command`, kills it after so many rows (None: never), and returns its exit code.

    Args:
        log: receives what the runs print.
        options: of `subprocess.Popen`, such as `cwd` and `env`.
    """
    base = [sys.executable, "-m", "support.killed_at_row", ",".join(imports), *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with open(log, "w") as errors, subprocess.Popen(base, stderr=errors, **pipes, **options) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to_base, from_base = process.stdin, process.stdout

        def run(n_rows: int | None) -> int:
            to_base.write(f"{'never' if n_rows is None else n_rows}\n")
            to_base.flush()
            return int(from_base.readline())

        yield run
        to_base.close()


def kill_at_row(n_rows: int) -> None:
    """Kill this process when it has written `n_rows` rows and the beginning of another."""
    written, write = itertools.count(), RowWriter.write

    def write_or_die(self: RowWriter, row: SelectionRow | AnswerRow) -> None:
        if next(written) == n_rows:
            self._file.write(b'{"benchmark":"')
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, row)

    RowWriter.write = write_or_die  # type: ignore[method-assign]


def _run_and_exit(n_rows: str) -> NoReturn:
    """Run the program as the main module, to be killed at that row unless it is "never", and exit with its code."""
    os.dup2(2, 1)
    code = 1
    try:
        if n_rows != "never":
            kill_at_row(int(n_rows))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it was, the log says so and the code is 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Fork for each line of the standard input."""
    for name in sys.argv[1].split(","):
        import_module(name)
    del sys.argv[:2]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run_and_exit(line.strip())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
