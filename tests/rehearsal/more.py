"""Rehearse matrices of one's own: further encoders, seeds, other options, a limit on cost, two runs at once.

They are written as docs/reproduce.md says, with the shipped parts by name.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from focus_eval.core.resources import resource_path
from tests.rehearsal.tables import (
    Step,
    check_folder,
    failure,
    run_in_one_process,
    run_matrices,
    with_chat,
    wrong_codes,
)
from tests.support.bench.independent_rows import read_run
from tests.support.bench.machine import MAX_SECONDS, Machine
from tests.support.keyframes.chat_server import ChatServer

LIMIT = 3
# The service on this machine reports 100 tokens for every question: at this price each costs ten cents.
PRICES = {"price_input": 1000, "price_output": 0, "num_concurrent": 1}
ENOUGH_FOR, N_REQUESTED = 3, 5


def run_own_matrices(machine: Machine, chat: ChatServer) -> Iterator[Step]:
    """Run three matrices of one's own: the encoder table's with the newer encoders, table 4 with three seeds, and one
    with options that no shipped matrix has.
    """
    folder = machine.work / "own"
    folder.mkdir(exist_ok=True)
    alpha = yaml.safe_load((resource_path("configs") / "paper" / "alpha.yaml").read_text(encoding="utf-8"))
    in_parts = model_config("qwen2_vl_7b", name="qwen2_vl_in_parts", decode_gigabytes=0.001)
    cover = {"sampler": "even_cover", "options": {"budget_of": "focus", "cuts": True, "weigh_cuts": [False, True]}}
    matrices: dict[str, dict[str, Any]] = {
        "new_encoders": {
            "table": "appendix", "anchors": "encoder", "benchmarks": ["longvideobench"], "models": ["qwen2_vl_7b"],
            "encoders": ["siglip2", "aimv2"], "samplers": ["uniform", "focus"], "k": [8],
        },
        "three_seeds": {**alpha, "samplers": alpha["samplers"][1:], "seeds": [0, 1, 2], "k": [8]},
        "options": {
            "table": "1", "benchmarks": ["longvideobench"], "models": ["gpt4o", in_parts], "encoders": ["blip"],
            "samplers": ["uniform", cover], "k": [8],
        },
    }  # fmt: skip
    for name, document in matrices.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for step in run_matrices(machine, chat, {f"own/{name}.yaml": LIMIT for name in matrices}):
        if step.name == "three_seeds":
            report = (machine.work / "results/runs/three_seeds/report.csv").read_text(encoding="utf-8")
            step.wrong += [] if "spread over seeds" in report else ["the report has no spread over seeds"]
        yield step


def run_with_a_limit_on_cost(machine: Machine) -> Step:
    """Run a matrix until its limit on cost stops it, then with a higher one: what is answered is not asked again."""
    # A service of its own: its requests are counted, and other steps may go on beside this one.
    with ChatServer() as chat:
        return _run_with_a_limit_on_cost(machine, chat)


def _run_with_a_limit_on_cost(machine: Machine, chat: ChatServer) -> Step:
    """Run with a `max_cost` that is too low, which must stop the run, and then with one that is enough."""
    step = Step("a limit on cost")
    for name, dollars in (("low", 0.1 * ENOUGH_FOR - 0.05), ("high", 100.0)):
        document = {
            "name": "limited", "table": "1", "benchmarks": ["longvideobench"], "samplers": ["uniform"], "k": [4],
            "models": [model_config("gpt4o", name="gpt4o", max_cost=dollars, **PRICES)],
        }  # fmt: skip
        (machine.work / f"limited_{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    options, folder = (
        ["--limit", str(N_REQUESTED), "--out", "results/limited/limited"],
        machine.work / "results/limited",
    )
    (low,) = run_in_one_process(machine, chat, [["run", "limited_low.yaml", *options]])
    sent = chat.n_requests
    if low["code"] != 2 or "max_cost=0.25 dollars are spent" not in low["err"]:
        step.wrong.append(failure(machine, low["arguments"], low["code"], low["out"], low["err"]))
    answered = len(read_run(folder / "limited").answers)
    if not sent == answered == ENOUGH_FOR:
        step.wrong.append(f"run with a low limit: {sent} requests, {answered} answers kept, {ENOUGH_FOR} expected")
    commands = [["run", "limited_high.yaml", *options], ["report", "results/limited/limited"]]
    ran = run_in_one_process(machine, chat, commands)
    step.wrong += wrong_codes(machine, ran)
    if chat.n_requests != N_REQUESTED:
        step.wrong.append(f"{chat.n_requests} requests in all, {N_REQUESTED} expected: an answer was paid twice")
    step.seconds = sum(item["seconds"] for item in (low, *ran))
    check_folder(step, folder / "limited")
    return step


def run_two_at_once(machine: Machine, chat: ChatServer, *, name: str, tables: Sequence[str]) -> Step:
    """Run two tables that share cells, or one table twice, at the same time, each in a process of its own."""
    started, step = time.perf_counter(), Step(name)
    program = str(Path(sys.executable).with_name("focus-eval"))
    options = ["--limit", str(LIMIT), "--only", "model=qwen2_vl_7b", "--out"]
    own_folder = machine.work / "results/beside" / name.replace(" ", "_")
    folders = [own_folder / f"{number}_{table}" for number, table in enumerate(tables)]
    processes = [
        subprocess.Popen(
            [program, "run", table, *options, str(folder)],
            cwd=machine.work,
            env=with_chat(machine, chat),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for table, folder in zip(tables, folders, strict=True)
    ]
    for table, process in zip(tables, processes, strict=True):
        _, errors = process.communicate(timeout=MAX_SECONDS)
        if process.returncode:
            step.wrong.append(failure(machine, ["run", table], process.returncode, "", errors))
    ran = run_in_one_process(machine, chat, [["report", str(folder)] for folder in folders])
    step.wrong += wrong_codes(machine, ran)
    step.wrong += wrong_parts(own_folder / "pool")
    shared = set.intersection(*({path.name for path in (folder / "answers").iterdir()} for folder in folders))
    step.wrong += [] if len(shared) >= 2 else [f"the tables share {len(shared)} cells; uniform and focus expected"]
    for folder in folders:
        check_folder(step, folder)
    step.seconds = time.perf_counter() - started
    return step


def wrong_parts(pool: Path) -> Iterator[str]:
    """Say which parts hold other than one row per question once both runs have ended."""
    import pyarrow.parquet

    for part in sorted([*pool.glob("selections/*"), *pool.glob("answers/*")]):
        rows = part / "rows.parquet"
        if not rows.exists():
            yield f"{part.name}: no rows, holds {', '.join(sorted(path.name for path in part.iterdir())) or 'nothing'}"
            continue
        ids = pyarrow.parquet.ParquetFile(rows).read(["question_id"])["question_id"].to_pylist()
        if len(ids) != LIMIT or len(set(ids)) != LIMIT:
            yield f"{part.name}: {len(ids)} rows of {len(set(ids))} questions, {LIMIT} expected"
        for lines in part.glob("*.jsonl"):
            yield f"{part.name}: {lines.name} was left behind"


def model_config(shipped: str, *, name: str, **arguments: Any) -> Mapping[str, Any]:
    """Return a shipped model's config with another name and further arguments."""
    config = yaml.safe_load((resource_path("configs") / "models" / f"{shipped}.yaml").read_text(encoding="utf-8"))
    return {**config, "name": name, "args": {**config["args"], **arguments}}
