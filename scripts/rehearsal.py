"""Rehearse the paper's tables on a machine made on the spot: tiny weights, made-up questions, the shipped configs.

    python scripts/rehearsal.py                 # everything, in two lanes; its last line says how long it took
    python scripts/rehearsal.py --only alpha    # some matrices, without lmms-eval's command line, accelerate and Ray
    python scripts/rehearsal.py --own           # matrices of one's own: 74 s of processor time
    python scripts/rehearsal.py --troubles      # what is missing, damaged or doubled: 141 s of processor time

The folder is rebuilt, and kept afterwards: its work/results/runs hold rows and reports.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import rehearsal, rehearsal_more, rehearsal_own, rehearsal_troubles
from support.chat_server import ChatServer
from support.machine import Machine, build_machine

# The 72B model, the same wrapper with more shards, has a table of its own.
LMMS_MODELS = ("qwen2_vl_7b", "llava_ov_7b", "llava_video_7b", "gpt4o")


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
    asked = parser.parse_args()
    started = time.perf_counter()
    machine = _machine(asked.folder, keep=asked.keep, own=asked.own)
    print(f"machine: {machine.root}, {time.perf_counter() - started:.0f} s", flush=True)
    with ChatServer() as chat, ThreadPoolExecutor(2) as lanes:
        steps = [step for lane in lanes.map(_printed, _lanes(machine, chat, asked)) for step in lane]
    print(rehearsal.step_table(steps))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = time.process_time() + used.ru_utime + used.ru_stime
    print(f"{time.perf_counter() - started:.0f} seconds in all, {processor:.0f} of processor time")
    sys.exit(any(step.wrong for step in steps))


def _printed(lane: Iterable[rehearsal.Step]) -> list[rehearsal.Step]:
    """Go through a lane, and print each step as it ends."""
    steps = []
    for step in lane:
        print(rehearsal.step_line(step), flush=True)
        steps.append(step)
    return steps


def _machine(folder: Path, *, keep: bool, own: bool) -> Machine:
    if keep:
        shutil.rmtree(folder / "work", ignore_errors=True)
        (folder / "work").mkdir()
        return Machine(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if own:
        return build_machine(folder, models=["qwen2_vl_7b", "llava_video_7b"], benchmarks=["longvideobench"])
    return build_machine(folder)


def _lanes(machine: Machine, chat: ChatServer, asked: argparse.Namespace):
    """Return what goes on side by side: the paper's tables and one's own; lmms-eval's command line, Ray and ablations.

    Both lanes write into one results folder and one pool of rows, as two terminals would.
    """
    if asked.only:
        return [rehearsal.run_matrices(machine, chat, dict.fromkeys(asked.only, asked.limit))]
    if asked.own:
        return [_own(machine, chat)]
    if asked.troubles:
        return [_troubles(machine, chat)]
    return [_matrices(machine, chat, asked.limit), _command_lines(machine, chat)]


def _own(machine: Machine, chat: ChatServer):
    yield rehearsal_more.run_with_a_limit_on_cost(machine)
    yield rehearsal_more.run_two_at_once(machine, chat, name="two tables at once", tables=("bernstein", "two_stage"))
    yield from rehearsal_more.run_own_matrices(machine, chat)


def _matrices(machine: Machine, chat: ChatServer, limit: int):
    yield rehearsal.run_alone(machine, chat, "two_stage", limit)
    others = [name for name in rehearsal.shipped("paper") if name != "two_stage"]
    yield from rehearsal.run_matrices(machine, chat, dict.fromkeys(others, limit))
    yield from _own(machine, chat)


def _command_lines(machine: Machine, chat: ChatServer):
    for name in LMMS_MODELS:
        yield rehearsal.run_lmms_eval(machine, chat, name, tasks=["longvideobench_val_v", "focus_mlvu"], limit=2)
    yield rehearsal.run_two_processes(machine, chat, task="focus_longvideobench", limit=5)
    yield rehearsal.run_with_ray(machine, chat, "more_benchmarks", 2, "--only", "model=qwen2_vl_7b")
    yield rehearsal_own.run_on_two_nodes(machine, "alpha", 2, "--only", "sampler=focus")
    yield rehearsal_own.run_with_own_folders(machine, limit=2)
    yield from _troubles(machine, chat)
    yield from rehearsal.run_matrices(machine, chat, dict.fromkeys(rehearsal.shipped("ablations"), 1))


def _troubles(machine: Machine, chat: ChatServer):
    yield from rehearsal_troubles.run_on_a_poor_machine(machine, chat)
    yield rehearsal_troubles.run_clashing_ids(machine, chat)
    yield rehearsal_troubles.run_api_payloads(machine)
    yield rehearsal_more.run_two_at_once(
        machine, chat, name="a table in two processes", tables=("bernstein", "bernstein")
    )


if __name__ == "__main__":
    main()
