"""Kills runs at random moments and looks at what is left: nothing lost, nothing twice, the same bytes at the end."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from focus_eval.bench.rows.store import COST_COLUMNS, parquet_records
from focus_eval.keyframes.rows.json_lines import read_lines

KINDS = ("SIGKILL", "SIGTERM", "SIGINT", "cut")
# Not among the kinds: an open video is then blamed, and its questions have other rows until they are asked again.
_CRASH = "SIGSEGV"
LONGEST_SECONDS = 300.0
# For the processes of a run, after its end.
SECONDS_TO_END = 20.0


@dataclass
class Survived:
    """What came of the kills of one road.

    Args:
        kills: by kind; "cut" is a write that ends at some byte, and the process with it.
        rounds: runs that were brought to their end, each compared with an undisturbed one.
        lost, repeated: rows that were there before a kill and not after it; rows that a question has more than one of.
        n_outliving: processes of a run that outlived it.
        wrong: what was wrong, one line each.
    """

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*KINDS, _CRASH), 0))
    rounds: int = 0
    lost: int = 0
    repeated: int = 0
    n_outliving: int = 0
    wrong: list[str] = field(default_factory=list)


def started(command: Callable[[], Any], *, log: Path, most_bytes: int | None = None) -> int:
    """Run `command` in a fork of this process, whose imports are done, and return the fork's process id.

    Args:
        most_bytes: no file may grow beyond this: the write that would is cut there, and the next one kills.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(log, "a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        command()
        code = 0
    except BaseException as error:  # noqa: BLE001 (this process ends here, whatever happened)
        print(repr(error), file=sys.stderr, flush=True)
    os._exit(code)


def kill_again_and_again(
    command: Callable[[Path], Any],
    folder: Path,
    *,
    n_kills: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
    prepare: Callable[[Path], Any] = lambda run: None,
    digests: Callable[[Path], dict[str, str]] | None = None,
    victims: Callable[[int], list[int]] = lambda pid: [pid],
) -> Survived:
    """Run `command(run folder)` in forks until `n_kills` of them were killed; compare every finished run.

    The command runs a matrix to its end, or what is left of it. The first run is undisturbed; its bytes are expected.

    Args:
        prepare: makes the folder of a new run, before its first start.
        digests: of what must be the same at the end; those of the finished rows by default.
        victims: of the processes that a run with this id has, those that may be killed: one of them is.
    """
    digests = digests or row_digests
    rng, survived = random.Random(seed), Survived()
    log = folder / "log.txt"
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder / "whole" / "run")
    start = time.perf_counter()
    _, status = os.waitpid(started(lambda: command(folder / "whole" / "run"), log=log), 0)
    if status:
        raise RuntimeError(f"the undisturbed run failed: {log.read_text()[-2000:]}")
    seconds = time.perf_counter() - start
    expected = digests(folder / "whole" / "run")
    if not expected:
        raise RuntimeError(f"the undisturbed run left nothing to compare: {log.read_text()[-2000:]}")
    largest = max(path.stat().st_size for path in (folder / "whole").rglob("*") if path.is_file())
    while sum(survived.kills.values()) < n_kills:
        run = folder / f"round{survived.rounds}" / "run"
        prepare(run)
        _one_round(partial(command, run), run, survived, rng, n_kills, kinds, seconds, largest, log, victims)
        if digests(run) != expected:
            survived.wrong.append(f"round {survived.rounds}: other bytes at the end")
        survived.rounds += 1
    return survived


def _one_round(
    command: Callable[[], Any], run: Path, survived: Survived, rng: random.Random, n_kills: int,
    kinds: Sequence[str], seconds: float, largest: int, log: Path,
    victims: Callable[[int], list[int]],
) -> None:  # fmt: skip
    """Kill until the run has come to its end."""
    rows = _rows(run)
    while True:
        kind = rng.choice(kinds) if sum(survived.kills.values()) < n_kills else ""
        limit = rng.randrange(200, largest) if kind == "cut" else None
        pid = started(command, log=log, most_bytes=limit)
        after_seconds = None if kind in ("", "cut") else rng.uniform(0.0, 0.6 * seconds)
        processes: set[int] = set()

        def victim(run_pid: int, processes: set[int] = processes) -> int:
            processes.update(candidates := victims(run_pid))
            return rng.choice(candidates)

        status, is_killed = _end_of(pid, after_seconds, kind, victim)
        survived.n_outliving += _n_left(processes - {pid})
        if os.WIFSIGNALED(status) or (kind and status) or is_killed:
            survived.kills[kind] += 1
        now, survived.repeated = _rows(run), survived.repeated + _n_repeated(run)
        survived.lost += sum(now.get(key) != row for key, row in rows.items())
        rows = now
        # Where one of its processes was killed, the run went on without the video that this one read.
        if status == 0 and not is_killed:
            return
        if not kind:
            survived.wrong.append(f"an undisturbed start failed: {log.read_text()[-300:]}")
            return


def _end_of(pid: int, after_seconds: float | None, kind: str, victim: Callable[[int], int]) -> tuple[int, bool]:
    """Wait for the end of a process; return its status, and whether it or one of its own was killed by signal `kind`.

    The victim is killed after some seconds where the process still runs.
    """
    started_at, is_killed = time.perf_counter(), False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        passed = time.perf_counter() - started_at
        if ended:
            return status, is_killed
        if not is_killed and after_seconds is not None and passed > after_seconds:
            with suppress(ProcessLookupError):  # one that ended by itself
                os.kill(victim(pid), signal.Signals[kind])
                is_killed = True
        if passed > LONGEST_SECONDS:
            os.kill(pid, signal.SIGKILL)
            raise RuntimeError(f"process {pid} did not end within {LONGEST_SECONDS:.0f} s of {kind or 'its start'}")
        time.sleep(0.005)


def _n_left(pids: set[int]) -> int:
    """Return how many of some processes still run after a while."""
    deadline = time.perf_counter() + SECONDS_TO_END
    while (n_left := sum(map(_is_alive, pids))) and time.perf_counter() < deadline:
        time.sleep(0.1)
    return n_left


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def row_digests(run: Path) -> dict[str, str]:
    """Return a digest of every `rows.parquet` of a run by its part."""
    files = sorted(run.glob("*/*/rows.parquet"))
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _rows(run: Path) -> dict[tuple[str, str], str]:
    """Return the finished rows of a run as text by (part, question), without what they cost."""
    return {key: sorted(texts)[0] for key, texts in row_texts(run).items()}


def _n_repeated(run: Path) -> int:
    """Return how many rows there are too many: lines of one question, or a line that differs from its Parquet row.

    A row may lie in both kinds of file while it is moved.
    """
    lines: Counter[tuple[str, str]] = Counter()
    for part in _parts(run):
        for path in part.glob("*.jsonl"):
            lines.update((part.name, values["question_id"]) for _, values in read_lines(path))
    return sum(n - 1 for n in lines.values()) + sum(len(texts) > 1 for texts in row_texts(run).values())


def _parts(run: Path) -> list[Path]:
    """Return the folders of rows of a run, or of each cell that lmms-eval recorded."""
    return sorted(path for pattern in ("*/*", "*/*/*") for path in run.glob(pattern) if path.is_dir())


def row_texts(run: Path) -> dict[tuple[str, str], set[str]]:
    """Return the rows of a run as text by (part, question), each as often as it differs, without what they cost.

    Rows that record an error are left out: they are asked again.
    """
    answers: dict[tuple[str, str], set[str]] = {}
    for part in _parts(run):
        for path in sorted(part.glob("*.jsonl")):
            for _, values in read_lines(path):
                if not values.get("error"):
                    answers.setdefault((part.name, values["question_id"]), set()).add(_text(values))
        if (part / "rows.parquet").exists():
            for values in parquet_records(part / "rows.parquet"):
                if not values.get("error"):
                    answers.setdefault((part.name, values["question_id"]), set()).add(_text(values))
    return answers


def _text(values: dict[str, Any]) -> str:
    """Return the row as text to compare, without costs and what a line leaves out."""
    # A line leaves out empty intervals and what is not so, which Parquet holds.
    left_out = ("evidence_intervals", "is_cut")
    stated_values = {name: value for name, value in values.items() if value or name not in left_out}
    return repr(sorted((name, value) for name, value in stated_values.items() if name not in COST_COLUMNS))
