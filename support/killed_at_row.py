"""Runs a command line that is killed in the middle of writing a row: `python -m ... N_ROWS MODULE ARGUMENTS`.

The process kills itself, so that no run is over before a kill from outside comes.
"""

from __future__ import annotations

import itertools
import os
import runpy
import signal
import sys

from focus_eval.rows.records import AnswerRow, RowWriter, SelectionRow


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


if __name__ == "__main__":
    kill_at_row(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
