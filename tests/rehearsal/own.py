"""Rehearse what docs/reproduce.md says beside the shipped tables: folders of one's own, and several nodes."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.rehearsal.tables import Step, check_folder, failure
from tests.support.bench.machine import Machine


def run_with_own_folders(machine: Machine, *, limit: int) -> Step:
    """Run table 4 from copied configs that name folders of weights, videos and documents, with an empty hub cache."""
    started, step = time.perf_counter(), Step("alpha, own folders")
    own_folder = machine.root / "own"
    shutil.rmtree(own_folder, ignore_errors=True)
    shutil.rmtree(machine.work / "myconfigs", ignore_errors=True)
    step.wrong += _failed(machine, {}, "list", "configs", "--copy", "myconfigs")
    configs = machine.work / "myconfigs"
    _edit(
        configs / "models/llava_video_7b.yaml",
        args={"pretrained": _weights(machine, "LLaVA-Video-7B-Qwen2", own_folder)},
    )
    (configs / "encoders").mkdir()
    blip = {"encoder": "blip", "options": {"checkpoint": _weights(machine, "blip-itm-large-coco", own_folder)}}
    (configs / "encoders/blip.yaml").write_text(yaml.safe_dump(blip), encoding="utf-8")
    _edit(configs / "benchmarks/longvideobench.yaml", **copied_data(machine, own_folder))
    empty = {"HF_HOME": str(own_folder / "empty"), "XDG_CACHE_HOME": str(own_folder / "cache")}
    for command in ("plan", "run"):
        step.wrong += _failed(
            machine, empty, command, "myconfigs/paper/alpha.yaml", "--limit", str(limit), *_OUT[command]
        )
    step.wrong += _failed(machine, empty, "report", "results/own/alpha")
    check_folder(step, machine.work / "results/own/alpha")
    step.seconds = time.perf_counter() - started
    return step


def run_on_two_nodes(machine: Machine, name: str, limit: int, *overrides: str) -> Step:
    """Run a matrix on a Ray cluster of two nodes, each started by `ray start` as on a machine of its own."""
    started, step = time.perf_counter(), Step(f"{name}, two Ray nodes")
    folder = f"results/nodes/{name}"
    options = ["--limit", str(limit), "--engine", "ray", "--out", folder, *overrides]
    for phase in ("select", "answer"):
        options += ["--set", f"{phase}_resources={{gpus: 0, cpus: 1}}"]
    with _two_nodes(machine) as (address, environment):
        store = str(machine.root / "nodes.sqlite")
        step.wrong += _failed(machine, environment, "run", name, *options, "--address", address, "--store", store)
    step.wrong += _failed(machine, {}, "report", folder)
    check_folder(step, machine.work / folder)
    step.seconds = time.perf_counter() - started
    return step


_OUT: dict[str, list[str]] = {"plan": [], "run": ["--out", "results/own/alpha"]}


def _weights(machine: Machine, repository: str, own_folder: Path) -> str:
    """Copy a snapshot out of the hub's cache to a folder of its own, and return that."""
    (snapshot,) = (machine.hf_home / "hub").glob(f"models--*--{repository}/snapshots/*")
    return str(shutil.copytree(snapshot, own_folder / repository))


def copied_data(machine: Machine, own_folder: Path) -> dict[str, Any]:
    """Copy LongVideoBench's documents, link its videos, and return what a benchmark's config says of them."""
    (snapshot,) = (machine.hf_home / "hub").glob("datasets--*--LongVideoBench/snapshots/*")
    documents = own_folder / "lvb"
    documents.mkdir(parents=True)
    for path in (*snapshot.glob("validation-*.parquet"), *snapshot.glob("lvb_val.json")):
        shutil.copy(path, documents / path.name)
    (documents / "videos").symlink_to(machine.hf_home / "datasets/longvideobench/videos")
    home = own_folder / "data/datasets/longvideobench"
    home.mkdir(parents=True)
    (home / "videos").symlink_to(documents / "videos")
    return {"videos": str(documents / "videos"), "dataset": str(documents), "data_home": str(own_folder / "data")}


def _edit(path: Path, **changes: Any) -> None:
    """Change keys of a YAML file; a mapping is merged with the one there."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def _failed(machine: Machine, environment: dict[str, str], *arguments: str) -> list[str]:
    """Run `focus-eval ARGUMENTS`; say what it printed if it failed."""
    process = machine.run("focus-eval", *arguments, check=False, variables=environment)
    if process.returncode == 0:
        return []
    return [failure(machine, arguments, process.returncode, process.stdout, process.stderr)]


@contextlib.contextmanager
def _two_nodes(machine: Machine) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a head and a second node in the foreground, and end them; `ray stop` would end everybody's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    ray = str(Path(sys.executable).with_name("ray"))
    common = ["--num-gpus=0", "--num-cpus=1", "--block", "--disable-usage-stats"]
    nodes = []
    # As docs/reproduce.md says; the token lies in a home directory of the machine's own.
    environment = machine.environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    try:
        for place in (["--head", f"--port={port}", "--include-dashboard=false"], [f"--address={address}"]):
            command = [ray, "start", *place, *common]
            nodes.append(
                subprocess.Popen(
                    command,
                    cwd=machine.work,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            time.sleep(10)
        yield address, environment
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait(timeout=60)
