"""Go through the paper's tables as a user does: from an empty machine to the report, every figure checked."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus_eval.core.resources import resource_path
from tests.support.bench.benchmark_data import BROKEN_VIDEO
from tests.support.bench.independent_rows import read_run
from tests.support.bench.machine import Machine
from tests.support.bench.report_check import check_report
from tests.support.keyframes import many_commands
from tests.support.keyframes.chat_server import ChatServer

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
        wrong: what is wrong, one line each.
    """

    name: str
    seconds: float = 0.0
    rows: int = 0
    errors: int = 0
    figures: int = 0
    wrong: list[str] = field(default_factory=list)


def shipped(kind: str) -> list[str]:
    """Return the names of the matrices in `configs/paper` or `configs/ablations` that the machine can run."""
    names = sorted(path.stem for path in (resource_path("configs") / kind).glob("*.yaml"))
    return [name for name in names if name not in NOT_HERE]


def with_chat(machine: Machine, chat: ChatServer, **variables: str) -> dict[str, str]:
    """Return the environment of a command that may ask the service behind the API."""
    return machine.environment(OPENAI_API_KEY="rehearsal", OPENAI_API_BASE=chat.url, **variables)


# Random weights: in a small cell it happens that no answer can be read, which ends a run.
ANY_ANSWER = ("--set", "allow_unparsed=true")


def run_matrices(
    machine: Machine,
    chat: ChatServer,
    limits: Mapping[str, int],
    options_by_matrix: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Step]:
    """Run plan, run, status and report of each matrix, and `run` a second time; all in one process.

    Args:
        limits: questions per benchmark, by matrix: a shipped name, or a file below the machine's `work`.
        options_by_matrix: further arguments of plan and run.
    """
    commands: list[list[str]] = []
    for name, limit in limits.items():
        narrowed = [name, "--limit", str(limit), *ANY_ANSWER, *(options_by_matrix or {}).get(name, ())]
        folder = f"results/runs/{Path(name).stem}"
        commands += [["plan", *narrowed], ["run", *narrowed], ["status", folder], ["report", folder]]
        commands += [["run", *narrowed]]
    ran = running_in_one_process(machine, chat, commands)
    for name in limits:
        yield _matrix_step(machine, Path(name).stem, list(itertools.islice(ran, 5)))


def run_alone(machine: Machine, chat: ChatServer, name: str, limit: int, *options: str) -> Step:
    """Run one matrix as a user does, a process per command."""
    step = Step(f"{name}, a process per command")
    narrowed = [name, "--limit", str(limit), *ANY_ANSWER, *options]
    folder = f"results/runs/{name}"
    for command in (["plan", *narrowed], ["run", *narrowed], ["status", folder], ["report", folder]):
        _timed(step, machine, with_chat(machine, chat), ["focus-eval", *command])
    check_folder(step, machine.work / folder)
    return step


def run_lmms_eval(machine: Machine, chat: ChatServer, name: str, *, tasks: Sequence[str], limit: int) -> Step:
    """Run lmms-eval's own command line with the model `name` of `configs/models`, as the README has it."""
    from focus_eval.bench.matrix.config import load_yaml

    config = load_yaml(resource_path("configs") / "models" / f"{name}.yaml")
    sampler_arguments = {"sampler": "focus", "sampler.alpha": "0.5", "encoder": "blip", "frames": "8", "seed": "0"}
    record = f"results/record/{name}"
    own_arguments = {**sampler_arguments, "record": record, "allow_unparsed": "true"}
    arguments = {**config.get("args", {}), **own_arguments, **CPU.get(config["model"], {})}
    argument_text = ",".join(f"{key}={value}" for key, value in arguments.items())
    command = ["lmms-eval", *_lmms_options(machine, config["model"], argument_text, tasks=tasks, limit=limit)]
    step = Step(f"lmms-eval {config['model']} ({name})")
    _timed(step, machine, with_chat(machine, chat), command)
    _check_recorded(step, machine.work / record, expected=limit * len(tasks))
    return step


def run_two_processes(machine: Machine, chat: ChatServer, *, task: str, limit: int) -> Step:
    """Run lmms-eval's command line in two processes through accelerate, with Qwen2-VL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    record = "results/record/two_processes"
    argument_text = (
        "pretrained=Qwen/Qwen2-VL-7B-Instruct,device=cpu,sampler=focus,encoder=blip,frames=8,seed=0,"
        f"record={record},allow_unparsed=true"
    )
    launch = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", str(port)]
    options = _lmms_options(machine, "focus_qwen2_vl", argument_text, tasks=[task], limit=limit)
    step = Step("lmms-eval, two processes")
    environment = {**with_chat(machine, chat), "ACCELERATE_USE_CPU": "true"}
    _timed(step, machine, environment, [*launch, "-m", "lmms_eval", *options])
    _check_recorded(step, machine.work / record, expected=limit)
    return step


def run_with_ray(machine: Machine, chat: ChatServer, name: str, limit: int, *options: str) -> Step:
    """Run a matrix on a Ray cluster of this machine, which has no GPU for a worker, into a folder of its own."""
    folder = f"results/ray/{name}"
    narrowed = [name, "--limit", str(limit), *ANY_ANSWER, *options]
    command = ["focus-eval", "run", *narrowed, "--engine", "ray", "--out", folder]
    for phase in ("select", "answer"):
        command += ["--set", f"{phase}_resources={{gpus: 0, cpus: 1}}"]
    step = Step(f"{name}, --engine ray")
    _timed(step, machine, with_chat(machine, chat), command)
    _timed(step, machine, machine.environment(), ["focus-eval", "report", folder])
    check_folder(step, machine.work / folder)
    return step


def step_line(step: Step) -> str:
    """Return what a step came to, and under it everything that is wrong."""
    came_to = f"{step.name}: {step.rows} rows, {step.errors} errors, {step.figures} figures, {step.seconds:.0f} s"
    return "\n".join([f"{came_to}, {len(step.wrong)} wrong", *(f"    {problem}" for problem in step.wrong)])


def step_table(steps: Iterable[Step]) -> str:
    """Return a plain-text table of the steps, and under it everything that is wrong."""
    rows = list(steps)
    width = max(len(step.name) for step in rows)
    lines = [f"{'step':<{width}}  {'rows':>5}  {'errors':>6}  {'seconds':>7}  {'figures':>7}  wrong"]
    total = Step("all", wrong=[problem for step in rows for problem in step.wrong])
    for name in ("seconds", "rows", "errors", "figures"):
        setattr(total, name, sum(getattr(step, name) for step in rows))
    for step in [*rows, total]:
        lines.append(
            f"{step.name:<{width}}  {step.rows:>5}  {step.errors:>6}  "
            f"{step.seconds:>7.1f}  {step.figures or '-':>7}  {len(step.wrong)}"
        )
    lines += [f"{step.name}: {problem}" for step in rows for problem in step.wrong]
    return "\n".join(lines)


def _matrix_step(machine: Machine, name: str, ran: Sequence[Mapping[str, Any]]) -> Step:
    """Return the step of one matrix with all that is wrong with its commands, files and rows.

    `run` must end with an error exactly if the run has questions on the broken video.
    """
    step = Step(name, seconds=sum(item["seconds"] for item in ran))
    for item in ran:
        if item["code"] and not _stops_for_errors(item):
            step.wrong.append(failure(machine, item["arguments"], item["code"], item["out"], item["err"]))
    if "nothing is missing" not in ran[0]["out"]:
        step.wrong.append(f"plan: {ran[0]['out'][-800:]}")
    folder = machine.work / "results" / "runs" / name
    step.wrong += _written_since(folder, ran[-1]["started"])
    check_folder(step, folder)
    is_spoilt = any(BROKEN_VIDEO in selection["video"] for _, selection in read_run(folder).answers)
    if is_spoilt != _stops_for_errors(ran[1]):
        step.wrong.append(f"run: exit code {ran[1]['code']} with{'' if is_spoilt else 'out'} a broken video")
    return step


def _written_since(folder: Path, moment: float) -> list[str]:
    """Say which rows the last `run` wrote: it had nothing left to ask."""
    files = [path for kind in ("selections", "answers") for path in (folder / kind).rglob("*") if path.is_file()]
    return [
        f"{path.name}: written by a run that had nothing left to do" for path in files if path.stat().st_mtime > moment
    ]


def _stops_for_errors(ran: Mapping[str, Any]) -> bool:
    """Return True if a run asked every question and then ended with exit code 2 because too many rows failed.

    The broken video makes them fail; a run that does not say so has hidden the failures.
    """
    return ran["arguments"][0] == "run" and ran["code"] == 2 and "rows record an error, max_error_share" in ran["err"]


def _wrong_errors(answers: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Say which answers should have failed and did not, or failed for another reason than the broken video.

    A sampler that returned no frame failed too: AKS with a small K, which `plan` announces.
    """
    wrong = []
    for answer, selection in answers:
        is_broken = BROKEN_VIDEO in selection["video"]
        error = answer["error"]
        if is_broken and (error is None or BROKEN_VIDEO not in error):
            wrong.append(f"{answer['question_id']} of {selection['sampler']}: broken video, the row says {error!r}")
        elif not is_broken and error is not None and "no frame" not in error:
            wrong.append(f"{answer['question_id']} of {selection['sampler']}: {error}")
    return wrong


def check_folder(step: Step, folder: Path) -> None:
    """Count the rows of a run, and check its report's figures."""
    if not (folder / "report.csv").exists():
        step.wrong.append(f"{folder.name}: no report.csv")
        return
    rows = read_run(folder)
    counted_rows = [answer for answer, _ in rows.answers] or list(rows.selections.values())
    step.rows, step.errors = len(counted_rows), sum(item["error"] is not None for item in counted_rows)
    step.wrong += _wrong_errors(rows.answers)
    checked = check_report(folder)
    step.figures = checked.figures
    step.wrong += checked.wrong
    step.wrong += [f"column {title!r}: nothing computes it again" for title in sorted(checked.unknown)]


def _check_recorded(step: Step, folder: Path, *, expected: int) -> None:
    """Count the answers that lmms-eval's road recorded: one per question and task, none twice."""
    files = sorted(folder.rglob("answers/*/*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    step.rows, step.errors = len(rows), sum(row["error"] is not None for row in rows)
    if len(rows) != expected:
        step.wrong.append(f"{len(rows)} answers recorded, {expected} expected")
    step.wrong += [f"{row['question_id']}: {row['error']}" for row in rows if row["error"] is not None]


def run_in_one_process(
    machine: Machine, chat: ChatServer, commands: list[list[str]], **variables: str
) -> list[dict[str, Any]]:
    """Run command lines of focus-eval one after the other in one process, and return what each came to.

    Args:
        more: of the environment.
    """
    return list(running_in_one_process(machine, chat, commands, **variables))


def running_in_one_process(
    machine: Machine, chat: ChatServer, commands: list[list[str]], **variables: str
) -> Iterator[dict[str, Any]]:
    """Yield what each of the command lines came to as soon as it has ended."""
    out = machine.root / f"commands{time.monotonic_ns()}.jsonl"
    out.touch()
    # By its file: the process sees the wheel, and `support` is not in it.
    command = [sys.executable, many_commands.__file__, str(out)]
    with open(out.with_suffix(".log"), "w") as log, open(out) as lines:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, cwd=machine.work,
            env=with_chat(machine, chat, **variables),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(commands))
        process.stdin.close()
        line, has_ended, n_lines = "", False, 0
        while n_lines < len(commands):
            line += lines.readline()
            if line.endswith("\n"):
                ran: dict[str, Any] = json.loads(line)
                line, n_lines = "", n_lines + 1
                yield ran
            elif has_ended:
                log_end = out.with_suffix(".log").read_text(encoding="utf-8")[-2000:]
                raise RuntimeError(f"the process of {len(commands)} commands ended after {n_lines}: {log_end}")
            else:
                has_ended = process.poll() is not None
                time.sleep(0.2)
        process.wait()


def _lmms_options(machine: Machine, model: str, arguments: str, *, tasks: Sequence[str], limit: int) -> list[str]:
    """Return what lmms-eval's command line is told, however it is started."""
    options = {"model": model, "model_args": arguments, "tasks": ",".join(tasks), "limit": limit, "batch_size": 1}
    options |= {"output_path": "results/lmms", "include_path": _tasks(machine)}
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


def _timed(step: Step, machine: Machine, environment: Mapping[str, str], command: Sequence[str]) -> None:
    """Run a command of this environment's `bin`, add its seconds to `step`, and note how it failed."""
    started = time.perf_counter()
    process = machine.run(*command, check=False, variables=environment)
    step.seconds += time.perf_counter() - started
    if process.returncode:
        step.wrong.append(failure(machine, command[:2], process.returncode, process.stdout, process.stderr))


def wrong_codes(machine: Machine, ran: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which command lines failed, and where all is that they printed."""
    return [failure(machine, item["arguments"], item["code"], item["out"], item["err"]) for item in ran if item["code"]]


def failure(machine: Machine, command: Sequence[str], code: int, out: str, err: str) -> str:
    """Keep all that a failed command printed in the machine's folder, and return its last line and the file."""
    file = machine.root / "failed" / f"{time.monotonic_ns()}.log"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{' '.join(command)}\nexit code {code}\n{out}\n{err}", encoding="utf-8")
    last = (err.strip() or out.strip() or "nothing was printed").splitlines()[-1]
    return f"{' '.join(command)}: exit code {code}: {last[:300]} (all of it: {file})"


def _tasks(machine: Machine) -> str:
    """Return the folder of our tasks in the wheel, as `focus-eval list tasks --install-path` prints it."""
    return str(machine.site / "focus_eval" / "_data" / "tasks")
