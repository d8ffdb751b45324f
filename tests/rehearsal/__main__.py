"""Rehearse the paper's tables on a machine made on the spot: tiny weights, made-up questions, the shipped configs.

    python -m tests.rehearsal                 # everything, three jobs at a time; its last line says how long it took
    python -m tests.rehearsal --only alpha    # some matrices, without lmms-eval's command line, accelerate and Ray
    python -m tests.rehearsal --own           # matrices of one's own
    python -m tests.rehearsal --troubles      # what is missing, damaged or doubled

The folder is rebuilt, and kept afterwards: its work/results/runs hold rows and reports.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rehearsal import more as rehearsal_more
from tests.rehearsal import own as rehearsal_own
from tests.rehearsal import tables as rehearsal
from tests.rehearsal import troubles as rehearsal_troubles
from tests.support.bench.machine import Machine, build_machine
from tests.support.keyframes.chat_server import ChatServer

# The 72B model, the same wrapper with more shards, has a table of its own.
LMMS_MODELS = ("qwen2_vl_7b", "llava_ov_7b", "llava_video_7b", "gpt4o")
# More than two processors do: some jobs wait for Ray, for a hub or for each other. Four take longer than three.
JOBS_AT_ONCE = 3
Job = Callable[[], Iterator[rehearsal.Step]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "focus-eval-rehearsal")
    parser.add_argument("--keep", action="store_true", help="take the machine that is in the folder already")
    parser.add_argument("--limit", type=int, default=5, help="questions per benchmark of the paper's tables")
    parser.add_argument("--only", nargs="*", help="these matrices only")
    parser.add_argument("--troubles", action="store_true", help="only what is missing, damaged or doubled")
    parser.add_argument(
        "--own", action="store_true", help="only what is not shipped: matrices and options of one's own"
    )
    arguments = parser.parse_args()
    started = time.perf_counter()
    machine = _machine(arguments.folder, keep=arguments.keep, with_own_files=arguments.own)
    print(f"machine: {machine.root}, {time.perf_counter() - started:.0f} s", flush=True)
    with ChatServer() as chat, ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        steps = [step for job in pool.map(_printed, _jobs(machine, chat, arguments)) for step in job]
    print(rehearsal.step_table(steps))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = time.process_time() + used.ru_utime + used.ru_stime
    print(f"{time.perf_counter() - started:.0f} seconds in all, {processor:.0f} of processor time")
    sys.exit(any(step.wrong for step in steps))


def _printed(job: Job) -> list[rehearsal.Step]:
    """Run a job, print each step as it ends, and return the steps."""
    steps = []
    for step in job():
        print(rehearsal.step_line(step), flush=True)
        steps.append(step)
    return steps


def _machine(folder: Path, *, keep: bool, with_own_files: bool) -> Machine:
    """Build the machine in a new folder, or keep the one there and empty its working folder."""
    if keep:
        shutil.rmtree(folder / "work", ignore_errors=True)
        (folder / "work").mkdir()
        return Machine(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if with_own_files:
        return build_machine(folder, models=["qwen2_vl_7b", "llava_video_7b"], benchmarks=["longvideobench"])
    return build_machine(folder)


def _jobs(machine: Machine, chat: ChatServer, parsed: argparse.Namespace) -> list[Job]:
    """Return the jobs to run side by side, the longest first.

    All jobs write into one results folder and one pool of rows, as several terminals would.
    """

    def matrices(names: Iterable[str], limit: int) -> Job:
        return lambda: rehearsal.run_matrices(machine, chat, dict.fromkeys(names, limit))

    def one(run: Callable[..., rehearsal.Step], *arguments, **options) -> Job:
        return lambda: iter([run(machine, *arguments, **options)])

    if parsed.only:
        return [matrices(parsed.only, parsed.limit)]
    own_jobs = [
        lambda: rehearsal_more.run_own_matrices(machine, chat),
        one(rehearsal_more.run_two_at_once, chat, name="two tables at once", tables=("bernstein", "two_stage")),
        one(rehearsal_more.run_with_a_limit_on_cost),
    ]
    troubles = [
        lambda: rehearsal_troubles.run_on_a_poor_machine(machine, chat),
        one(rehearsal_troubles.run_clashing_ids, chat),
        one(rehearsal_troubles.run_api_payloads),
        one(rehearsal_more.run_two_at_once, chat, name="a table in two processes", tables=("bernstein", "bernstein")),
    ]
    if parsed.own or parsed.troubles:
        return own_jobs if parsed.own else troubles
    tables = [name for name in rehearsal.shipped("paper") if name != "two_stage"]
    ablations = rehearsal.shipped("ablations")
    return [
        one(rehearsal.run_with_ray, chat, "more_benchmarks", 2, "--only", "model=qwen2_vl_7b"),
        matrices(tables[::2], parsed.limit),
        matrices(tables[1::2], parsed.limit),
        matrices(ablations[::2], 1),
        one(rehearsal_own.run_on_two_nodes, "alpha", 2, "--only", "sampler=focus"),
        matrices(ablations[1::2], 1),
        *own_jobs,
        *troubles,
        one(rehearsal.run_alone, chat, "two_stage", parsed.limit),
        one(rehearsal_own.run_with_own_folders, limit=2),
        one(rehearsal.run_two_processes, chat, task="focus_longvideobench", limit=5),
        *(
            one(rehearsal.run_lmms_eval, chat, name, tasks=["longvideobench_val_v", "focus_mlvu"], limit=2)
            for name in LMMS_MODELS
        ),
    ]


if __name__ == "__main__":
    main()
