"""Go through the paper's tables as a user does: from an empty machine to the report, every figure checked."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus_eval.resources import resource_path
from focus_eval.testing.chat_server import ChatServer
from focus_eval.testing.machine import Machine
from focus_eval.testing.report_check import check_report, read_run

PAPER = (
    "main_results", "by_length", "efficiency", "alpha", "more_benchmarks", "two_stage", "bernstein", "clip_length",
    "encoder", "full_comparison",
)  # fmt: skip
# The demo's own benchmark is not a data set of the hub; `focus-eval demo` rehearses it.
NOT_HERE = ("cheap_pulls", "demo")
# lmms-eval's own wrappers take a GPU for granted on their command line.
CPU = {"focus_qwen2_vl": {"device": "cpu"}, "focus_llava_onevision": {"device": "cpu"}}


@dataclass
class Step:
    """One command line or matrix of the rehearsal.

    Args:
        rows, errors: answers (selections where no model answers), and those that record an error.
        figures: numbers of the report that were computed again from the rows.
        wrong: what is not as it must be, one line each.
    """

    name: str
    seconds: float = 0.0
    rows: int = 0
    errors: int = 0
    figures: int = 0
    wrong: list[str] = field(default_factory=list)


def shipped(kind: str) -> list[str]:
    """Return the names of the matrices in `configs/paper` or `configs/ablations` that the machine can run."""
    found = sorted(path.stem for path in (resource_path("configs") / kind).glob("*.yaml"))
    return [name for name in found if name not in NOT_HERE]


def with_chat(machine: Machine, chat: ChatServer) -> dict[str, str]:
    """Return the environment of a command that may ask the service behind the API."""
    return machine.environment(OPENAI_API_KEY="rehearsal", OPENAI_API_BASE=chat.url)


def run_matrices(machine: Machine, chat: ChatServer, limits: Mapping[str, int], *more: str) -> list[Step]:
    """Run plan, run, status and report of each matrix, and `run` a second time; all in one process.

    Args:
        limits: questions per benchmark, by matrix.
        more: further arguments of plan and run.
    """
    commands: list[list[str]] = []
    for name, limit in limits.items():
        narrowed = [name, "--limit", str(limit), *more]
        folder = f"results/runs/{name}"
        commands += [["plan", *narrowed], ["run", *narrowed], ["status", folder], ["report", folder]]
        commands += [["run", *narrowed]]
    ran = _in_one_process(machine, chat, commands)
    each = [ran[at : at + 5] for at in range(0, len(ran), 5)]
    return [_matrix_step(machine, name, part) for name, part in zip(limits, each, strict=True)]


def run_alone(machine: Machine, chat: ChatServer, name: str, limit: int, *more: str) -> Step:
    """Run one matrix as a user does, a process per command."""
    started, step = time.perf_counter(), Step(f"{name}, a process per command")
    narrowed = [name, "--limit", str(limit), *more]
    folder = f"results/runs/{name}"
    for command in (["plan", *narrowed], ["run", *narrowed], ["status", folder], ["report", folder]):
        done = _started(machine, with_chat(machine, chat), ["focus-eval", *command])
        if done.returncode:
            step.wrong.append(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr[-500:]}")
    _check_folder(step, machine.work / folder)
    step.seconds = time.perf_counter() - started
    return step


def run_lmms_eval(machine: Machine, chat: ChatServer, name: str, *, tasks: Sequence[str], limit: int) -> Step:
    """Run lmms-eval's own command line with the model `name` of `configs/models`, as the README has it."""
    from focus_eval.matrix.yaml_source import load_yaml

    stated = load_yaml(resource_path("configs") / "models" / f"{name}.yaml")
    own = {"sampler": "focus", "sampler.alpha": "0.5", "encoder": "blip", "frames": "8", "seed": "0"}
    record = f"results/record/{name}"
    arguments = {**stated.get("args", {}), **own, "record": record, **CPU.get(stated["model"], {})}
    told = ",".join(f"{key}={value}" for key, value in arguments.items())
    command = ["lmms-eval", "--model", stated["model"], "--model_args", told, "--tasks", ",".join(tasks)]
    command += [
        "--limit",
        str(limit),
        "--batch_size",
        "1",
        "--output_path",
        "results/lmms",
        "--include_path",
        _tasks(machine),
    ]
    started, step = time.perf_counter(), Step(f"lmms-eval {stated['model']} ({name})")
    done = _started(machine, with_chat(machine, chat), command)
    step.seconds = time.perf_counter() - started
    if done.returncode:
        step.wrong.append(f"exit code {done.returncode}: {done.stderr[-800:]}")
    _check_recorded(step, machine.work / record, expected=limit * len(tasks))
    return step


def run_two_processes(machine: Machine, chat: ChatServer, *, task: str, limit: int) -> Step:
    """Run lmms-eval's command line in two processes through accelerate, with Qwen2-VL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    record = "results/record/two_processes"
    told = f"pretrained=Qwen/Qwen2-VL-7B-Instruct,device=cpu,sampler=focus,encoder=blip,frames=8,seed=0,record={record}"
    launch = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", str(port)]
    command = [*launch, "-m", "lmms_eval", "--model", "focus_qwen2_vl", "--model_args", told, "--tasks", task]
    command += [
        "--limit",
        str(limit),
        "--batch_size",
        "1",
        "--output_path",
        "results/lmms",
        "--include_path",
        _tasks(machine),
    ]
    started, step = time.perf_counter(), Step("lmms-eval, two processes")
    done = _started(machine, {**with_chat(machine, chat), "ACCELERATE_USE_CPU": "true"}, command)
    step.seconds = time.perf_counter() - started
    if done.returncode:
        step.wrong.append(f"exit code {done.returncode}: {done.stderr[-800:]}")
    _check_recorded(step, machine.work / record, expected=limit)
    return step


def run_with_ray(machine: Machine, chat: ChatServer, name: str, limit: int, *more: str) -> Step:
    """Run a matrix on a Ray cluster of this machine, which has no GPU for a worker, into a folder of its own."""
    folder = f"results/ray/{name}"
    command = ["focus-eval", "run", name, "--limit", str(limit), "--engine", "ray", "--out", folder, *more]
    for phase in ("select", "answer"):
        command += ["--set", f"{phase}_resources={{gpus: 0, cpus: 1}}"]
    started, step = time.perf_counter(), Step(f"{name}, --engine ray")
    done = _started(machine, with_chat(machine, chat), command)
    if done.returncode:
        step.wrong.append(f"exit code {done.returncode}: {done.stderr[-800:]}")
    done = _started(machine, machine.environment(), ["focus-eval", "report", folder])
    if done.returncode:
        step.wrong.append(f"report: exit code {done.returncode}: {done.stderr[-800:]}")
    _check_folder(step, machine.work / folder)
    step.seconds = time.perf_counter() - started
    return step


def step_table(steps: Iterable[Step]) -> str:
    """Return a plain-text table of the steps, and under it everything that is wrong."""
    shown = list(steps)
    width = max(len(step.name) for step in shown)
    lines = [f"{'step':<{width}}  {'rows':>5}  {'errors':>6}  {'seconds':>7}  {'figures':>7}  wrong"]
    for item in shown:
        figures = str(item.figures) if item.figures else "-"
        lines.append(
            f"{item.name:<{width}}  {item.rows:>5}  {item.errors:>6}  "
            f"{item.seconds:>7.1f}  {figures:>7}  {len(item.wrong)}"
        )
    lines.append(
        f"{'all':<{width}}  {sum(one.rows for one in shown):>5}  {sum(one.errors for one in shown):>6}  "
        f"{sum(one.seconds for one in shown):>7.1f}  {sum(one.figures for one in shown):>7}  "
        f"{sum(len(one.wrong) for one in shown)}"
    )
    lines += [f"{item.name}: {problem}" for item in shown for problem in item.wrong]
    return "\n".join(lines)


def _matrix_step(machine: Machine, name: str, ran: Sequence[Mapping[str, Any]]) -> Step:
    step = Step(name, seconds=sum(item["seconds"] for item in ran))
    for item in ran:
        if item["code"]:
            step.wrong.append(f"{' '.join(item['arguments'])}: exit code {item['code']}: {item['err'][-800:]}")
    if "nothing is missing" not in ran[0]["out"]:
        step.wrong.append(f"plan: {ran[0]['out'][-800:]}")
    _check_folder(step, machine.work / "results" / "runs" / name)
    return step


def _check_folder(step: Step, folder: Path) -> None:
    """Count the rows of a run, and check its report's figures."""
    if not (folder / "report.csv").exists():
        step.wrong.append(f"{folder.name}: no report.csv")
        return
    rows = read_run(folder)
    shown = [answer for answer, _ in rows.answers] or list(rows.selections.values())
    step.rows, step.errors = len(shown), sum(item["error"] is not None for item in shown)
    checked = check_report(folder)
    step.figures = checked.figures
    step.wrong += checked.wrong
    step.wrong += [f"column {title!r}: nothing computes it again" for title in sorted(checked.unknown)]


def _check_recorded(step: Step, folder: Path, *, expected: int) -> None:
    """Count the answers that lmms-eval's road recorded: one per question and task, none twice."""
    files = sorted(folder.rglob("answers/*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    step.rows, step.errors = len(rows), sum(row["error"] is not None for row in rows)
    if len(rows) != expected:
        step.wrong.append(f"{len(rows)} answers recorded, {expected} expected")
    step.wrong += [f"{row['question_id']}: {row['error']}" for row in rows if row["error"] is not None]


def _in_one_process(machine: Machine, chat: ChatServer, commands: list[list[str]]) -> list[dict[str, Any]]:
    out = machine.root / f"commands{time.monotonic_ns()}.json"
    done = subprocess.run(
        [sys.executable, "-m", "focus_eval.testing.many_commands", str(out)],
        input=json.dumps(commands),
        text=True,
        capture_output=True,
        cwd=machine.work,
        env=with_chat(machine, chat),
        check=False,
    )
    if not out.exists():
        raise RuntimeError(
            f"the process of {len(commands)} commands ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    found: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _started(
    machine: Machine, environment: Mapping[str, str], command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name(command[0]))
    return subprocess.run(
        [program, *command[1:]],
        cwd=machine.work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def _tasks(machine: Machine) -> str:
    """The folder of our tasks in the wheel, as `focus-eval tasks --install-path` prints it."""
    return str(machine.site / "focus_eval" / "_data" / "tasks")
