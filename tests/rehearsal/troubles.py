"""Rehearse what is missing, damaged or doubled on a user's machine, and compare what an API is sent byte by byte."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from focus_eval.core.resources import resource_path
from tests.rehearsal.more import model_config
from tests.rehearsal.own import copied_data
from tests.rehearsal.tables import Step, check_folder, failure, run_in_one_process, run_matrices
from tests.support.bench.api_forms import encoded_frame
from tests.support.bench.independent_rows import read_run
from tests.support.bench.lmms_data import decode_all
from tests.support.bench.machine import Machine, commit_of
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.local_hub import HubRepository, LocalHub

GATED, MODEL = "longvideobench/LongVideoBench", "Qwen/Qwen2-VL-7B-Instruct"
TABLE = ["main_results", "--limit", "5", "--set", "allow_unparsed=true", "--out", "results/troubles/main_results"]
for narrowed in ("benchmark=longvideobench", "model=qwen2_vl_7b", "sampler=uniform,focus"):
    TABLE += ["--only", narrowed]
VIDEOS_HERE = 3
K = 64
QUESTIONS = 3


def run_on_a_poor_machine(machine: Machine, chat: ChatServer) -> Iterator[Step]:
    """Run a table where a gated data set was not fetched, a shard is damaged and half the videos are missing.

    Each is named by `plan`; each is fixed as the line says, by the hub's own client.
    """
    home = _poor_home(machine)
    environment = {"HF_HOME": str(home)}
    with LocalHub(tuple(_repositories(machine))) as hub:
        online = {**environment, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        yield _gated(machine, chat, environment, online)
        yield _damaged_shard(machine, chat, home, environment, {**online, "HF_TOKEN": "hf_rehearsal"})
    yield _half_the_videos(machine, chat, environment)


def _gated(machine: Machine, chat: ChatServer, environment: dict[str, str], online: dict[str, str]) -> Step:
    """Rehearse a gated data set: `plan` says how to get it, and downloading needs a token."""
    step = Step("a gated data set")
    (plan,) = run_in_one_process(machine, chat, [["plan", *TABLE]], **environment)
    command = f"hf download {GATED} --repo-type dataset"
    _expect(step, machine, plan, code=1, messages=["the data set is gated, no token is set on this machine", command])
    step.seconds = plan["seconds"]
    started = time.perf_counter()
    refused = machine.run(*command.split(), check=False, variables=online)
    if refused.returncode == 0 or "requires approval" not in refused.stderr + refused.stdout:
        step.wrong.append(failure(machine, [command], refused.returncode, refused.stdout, refused.stderr))
    machine.run(*command.split(), variables={**online, "HF_TOKEN": "hf_rehearsal"})
    step.seconds += time.perf_counter() - started
    return step


def _damaged_shard(
    machine: Machine, chat: ChatServer, home: Path, environment: dict[str, str], online: dict[str, str]
) -> Step:
    """Rehearse a checkpoint with one wrong byte: `plan` and `run` name the shard, and nothing is run."""
    step = Step("a damaged shard")
    snapshot = next((home / "hub" / _cache_name("model", MODEL) / "snapshots").iterdir())
    shard = sorted(snapshot.glob("*.safetensors"))[-1]
    blob = shard.resolve()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    plan, run = run_in_one_process(machine, chat, [["plan", *TABLE], ["run", *TABLE]], **environment)
    _expect(step, machine, plan, code=1, messages=[shard.name, "damaged", f"delete {blob} and download it again"])
    _expect(step, machine, run, code=1, messages=[shard.name])
    if (machine.work / "results/troubles/main_results").exists():
        step.wrong.append("a run with a damaged shard wrote a folder")
    started = time.perf_counter()
    blob.unlink()
    machine.run("hf", "download", MODEL, variables=online)
    step.seconds = plan["seconds"] + run["seconds"] + time.perf_counter() - started
    return step


def _half_the_videos(machine: Machine, chat: ChatServer, environment: dict[str, str]) -> Step:
    """Rehearse a folder that lacks videos: nothing is run, unless `--available-only` is given."""
    step, folder = Step("half the videos"), "results/troubles/main_results"
    part = [*TABLE, "--available-only"]
    commands = [["plan", *TABLE], ["plan", *part], ["run", *part], ["report", folder]]
    whole, plan, run, report = run_in_one_process(machine, chat, commands, **environment)
    _expect(step, machine, whole, code=1, messages=["lvb0000003.mp4", "--available-only"])
    availability = f"{VIDEOS_HERE} of 1,337 questions are asked"
    _expect(
        step,
        machine,
        plan,
        code=0,
        messages=[availability, "every figure of this run is partial", "nothing is missing"],
    )
    _expect(step, machine, run, code=0)
    _expect(step, machine, report, code=0, messages=[f"{VIDEOS_HERE} of 1337"])
    step.seconds = sum(item["seconds"] for item in (whole, plan, run, report))
    check_folder(step, machine.work / folder)
    step.wrong += [] if step.rows == 2 * VIDEOS_HERE else [f"{step.rows} rows, {2 * VIDEOS_HERE} expected"]
    return step


def run_clashing_ids(machine: Machine, chat: ChatServer) -> Step:
    """Run a table over two benchmarks whose questions have the same ids: LongVideoBench with those of Video-MME."""
    own_folder = machine.root / "clash"
    shutil.rmtree(own_folder, ignore_errors=True)
    document = yaml.safe_load((resource_path("configs") / "benchmarks/longvideobench.yaml").read_text(encoding="utf-8"))
    benchmark = {"name": "longvideobench", **document, **copied_data(machine, own_folder)}
    _rename_ids(own_folder / "lvb")
    matrix = {
        "table": "1", "benchmarks": [benchmark, "videomme"], "models": ["qwen2_vl_7b"], "encoders": ["blip"],
        "samplers": ["uniform", "focus"], "k": [8],
    }  # fmt: skip
    (machine.work / "clashing_ids.yaml").write_text(yaml.safe_dump(matrix), encoding="utf-8")
    (step,) = run_matrices(machine, chat, {"clashing_ids.yaml": QUESTIONS})
    n_answers = Counter((answer["benchmark"], answer["question_id"]) for answer, _ in _answers(machine, "clashing_ids"))
    ids = {f"001-{number + 1}" for number in range(QUESTIONS)}
    if n_answers != Counter({(name, item): 2 for name in ("longvideobench", "videomme") for item in ids}):
        step.wrong.append(f"questions asked: {dict(n_answers)}")
    return step


def run_api_payloads(machine: Machine) -> Step:
    """Ask a service with 64 frames, as JPEG and as PNG; every image it received is that of an exact frame."""
    matrix = {
        "table": "1", "benchmarks": ["longvideobench"], "encoders": ["blip"], "samplers": ["uniform", "focus"],
        "models": ["gpt4o", model_config("gpt4o", name="gpt4o_png", jpeg_quality=None, max_side=None)], "k": [K],
    }  # fmt: skip
    (machine.work / "payloads.yaml").write_text(yaml.safe_dump(matrix), encoding="utf-8")
    with ChatServer(keeps_images=True) as chat:
        (step,) = run_matrices(machine, chat, {"payloads.yaml": QUESTIONS})
        sent = Counter(_digest(text, images) for text, images in chat.images)
        n_images = sum(len(images) for _, images in chat.images)
    expected: Counter[str] = Counter()
    for answer, selection in _answers(machine, "payloads"):
        frames = decode_all(machine.hf_home / "datasets/longvideobench/videos" / selection["video"])
        form = "PNG" if answer["model"] == "gpt4o_png" else "JPEG"
        expected[_digest(selection["query"], [encoded_frame(frames[at], form) for at in selection["keyframes"]])] += 1
    step.name = f"payloads of an API, K = {K}, {n_images} images"
    if sent != expected or n_images != 2 * 2 * QUESTIONS * K:
        alike = sum((sent & expected).values())
        step.wrong.append(f"{alike} of {sum(expected.values())} requests hold the images of their exact frames")
    return step


def _digest(text: str, images: list[bytes]) -> str:
    """Return a hash of a question's scene, which its text names, and of its images in their order."""
    scene = text.partition(" when scene ")[2].partition(" begins?")[0]
    return hashlib.sha256(scene.encode() + b"".join(hashlib.sha256(image).digest() for image in images)).hexdigest()


def _answers(machine: Machine, name: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return list(read_run(machine.work / "results/runs" / name).answers)


def _expect(
    step: Step, machine: Machine, ran: Mapping[str, Any], *, code: int, messages: list[str] | None = None
) -> None:
    """Note it where a command ended with another code, or did not say these texts."""
    # Lines are folded at the width of the terminal.
    printed = " ".join((ran["out"] + ran["err"]).split())
    missing = [text for text in messages or [] if text not in printed]
    if ran["code"] != code or missing:
        step.wrong.append(failure(machine, ran["arguments"], ran["code"], ran["out"], ran["err"]))
        step.wrong += [f"{ran['arguments'][0]}: not said: {text}" for text in missing]


def _poor_home(machine: Machine) -> Path:
    """Make a $HF_HOME of links to the machine's: without the gated documents, with some videos, a model of its own."""
    home = machine.root / "troubles"
    shutil.rmtree(home, ignore_errors=True)
    (home / "hub").mkdir(parents=True)
    gated, model = _cache_name("dataset", GATED), _cache_name("model", MODEL)
    for path in (machine.hf_home / "hub").iterdir():
        if path.name not in (gated, model):
            (home / "hub" / path.name).symlink_to(path)
    shutil.copytree(machine.hf_home / "hub" / model, home / "hub" / model, symlinks=True)
    videos = home / "datasets/longvideobench/videos"
    videos.mkdir(parents=True)
    for number in range(VIDEOS_HERE):
        name = f"lvb{number:07d}.mp4"
        (videos / name).symlink_to(machine.hf_home / "datasets/longvideobench/videos" / name)
    return home


def _repositories(machine: Machine) -> Iterator[HubRepository]:
    """Yield the repositories that the local hub serves: a gated data set and a model."""
    hub = machine.root / "hub"
    for name, kind, folder in ((GATED, "dataset", "datasets/longvideobench"), (MODEL, "model", "models/qwen2_vl_7b")):
        yield HubRepository(
            name=name, kind=kind, folder=hub / folder, commit=commit_of(name), is_gated=kind == "dataset"
        )


def _cache_name(kind: str, repository: str) -> str:
    return f"{kind}s--{repository.replace('/', '--')}"


def _rename_ids(documents: Path) -> None:
    """Give LongVideoBench's copied documents and annotations the ids of Video-MME."""
    import pyarrow
    import pyarrow.parquet

    (file,) = documents.glob("validation-*.parquet")
    table = pyarrow.parquet.read_table(file)
    ids = [f"{number // 3 + 1:03d}-{number % 3 + 1}" for number in range(table.num_rows)]
    at = table.column_names.index("id")
    pyarrow.parquet.write_table(table.set_column(at, "id", pyarrow.array(ids)), file)
    annotations = json.loads((documents / "lvb_val.json").read_text(encoding="utf-8"))
    renamed = [{**item, "id": new} for item, new in zip(annotations, ids, strict=True)]
    (documents / "lvb_val.json").write_text(json.dumps(renamed), encoding="utf-8")
