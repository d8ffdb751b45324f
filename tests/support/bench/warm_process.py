"""Runs command lines in forks of one process whose imports are done, and kills them in the middle of a row if asked.

    with WarmProcess(["lmms_eval.__main__"], folder=tmp_path) as warm:
        process = warm.run(["lmms_eval", "--tasks", "focus_mlvu"])

The first element of a command is a module; a fork runs it as `python -m` would. Each line of the standard input of
`python -m tests.support.bench.warm_process IMPORTS TASK_INDEX` is a list of runs as JSON, which go on at once; a
list of their exit codes comes back.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.support.bench.official_tasks import share_index

ROOT = Path(__file__).resolve().parents[3]
MAX_SECONDS = 600.0


class WarmProcess:
    """A process with slow imports done that runs any number of command lines.

    Args:
        imports: modules to load before the first fork.
        folder: receives what the runs print.
        task_index: file of `tests.support.bench.official_tasks.share_index`.
        options: of `subprocess.Popen`, such as `cwd` and `env`.
    """

    def __init__(self, imports: Sequence[str], *, folder: Path, task_index: Path | None = None, **options: Any) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="warm", dir=folder))
        base = [sys.executable, "-m", "tests.support.bench.warm_process", ",".join(imports), str(task_index or "")]
        # Another package installs a folder of this name, which is found first from elsewhere than the checkout.
        options["env"] = {**options.get("env", os.environ), "PYTHONPATH": str(ROOT)}
        with open(self._folder / "base.txt", "w") as log:
            self._process = subprocess.Popen(
                base, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, **options
            )
        self._numbers = itertools.count()

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(
        self, command: Sequence[str], *, variables: Mapping[str, str] | None = None, kill_at_row: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end.

        Args:
            variables: further environment variables.
            kill_at_row: number of rows after which the run kills itself; None: never. Its row makes sure that no run
                is over before a kill from outside comes.
        """
        (process,) = self.run_together([command], [variables or {}], kill_at_row=kill_at_row)
        return process

    def run_together(
        self,
        commands: Sequence[Sequence[str]],
        variables: Sequence[Mapping[str, str]],
        *,
        kill_at_row: int | None = None,
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run command lines at once, each with environment variables of its own."""
        runs: list[dict[str, Any]] = [
            {
                "command": list(map(str, command)), "variables": dict(additions), "kill_at_row": kill_at_row,
                "out": str(self._folder / f"{number}.out"), "err": str(self._folder / f"{number}.err"),
            }
            for command, additions, number in zip(commands, variables, self._numbers, strict=False)
        ]  # fmt: skip
        paths_by_run = [[Path(run[name]) for name in ("out", "err")] for run in runs]
        return [
            subprocess.CompletedProcess(run["command"], code, *(path.read_text() for path in paths))
            for run, code, paths in zip(runs, self._ask(runs), paths_by_run, strict=True)
        ]

    def _ask(self, runs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the exit codes of runs, as `subprocess` counts them."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(runs) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], MAX_SECONDS)[0]:
            process.kill()
            raise TimeoutError(f"{runs[0]['command']} took more than {MAX_SECONDS:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise RuntimeError((self._folder / "base.txt").read_text()[-3000:])
        codes: list[int] = json.loads(line)
        return codes


def kill_self_at_row(n_rows: int) -> None:
    """Kill this process when it has written `n_rows` rows and the beginning of another."""
    written, write = itertools.count(), RowWriter.write

    def write_or_die(self: RowWriter, row: SelectionRow | AnswerRow) -> None:
        if next(written) == n_rows:
            self._file.write(b'{"benchmark":"')
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, row)

    RowWriter.write = write_or_die  # type: ignore[method-assign]


def _run_and_exit(run: Mapping[str, Any]) -> NoReturn:
    """Run a program as the main module, with its output in files, and exit with its code."""
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(run[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.update(run["variables"])
    sys.argv = run["command"]
    code = 1
    try:
        if run["kill_at_row"] is not None:
            kill_self_at_row(run["kill_at_row"])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it was, the log says so and the code is 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork(run: Mapping[str, Any]) -> int:
    """Start a run in a fork, and return the fork's process id."""
    pid = os.fork()
    if pid == 0:
        _run_and_exit(run)
    return pid


def main() -> None:
    """Fork for each run of each line of the standard input."""
    for name in sys.argv[1].split(","):
        import_module(name)
    if sys.argv[2]:
        share_index(Path(sys.argv[2]))
    for line in sys.stdin:
        pids = [_fork(run) for run in json.loads(line)]
        print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], flush=True)


if __name__ == "__main__":
    main()
