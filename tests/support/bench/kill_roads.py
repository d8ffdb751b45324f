"""The roads on which runs are killed: each brings a small matrix, or lmms-eval's command line, to its end."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from focus_eval.bench.matrix.config import MatrixConfig, load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.resources import resource_path
from tests.support.bench.answering import write_answering_matrix
from tests.support.bench.kills import KINDS, row_digests, row_texts
from tests.support.bench.load import write_load_matrix

TASK = "focus_longvideobench"


@dataclass(frozen=True)
class Road:
    """What is killed, and what must be the same at its end.

    Args:
        command: brings the run in a folder to its end, or what is left of it.
        prepare: makes the folder of a new run before its first start.
        digests: of what an undisturbed run and a killed one must have in common.
        kinds: how it is killed.
        victims: of the processes that a run with this id has, those that may be killed.
    """

    name: str
    command: Callable[[Path], Any]
    prepare: Callable[[Path], Any] = lambda run: None
    digests: Callable[[Path], dict[str, str]] = row_digests
    kinds: tuple[str, ...] = KINDS
    victims: Callable[[int], list[int]] = lambda pid: [pid]


def selecting(folder: Path, n_questions: int) -> Road:
    """Select with recorded relevance."""
    matrix = load_matrix(write_load_matrix(folder, n_questions, samplers=("uniform", "topk", "focus")))
    return Road("select", lambda run: complete_run(matrix, out=run))


def compacting(folder: Path, n_questions: int) -> Road:
    """Turn finished lines into Parquet, and nothing else: every row is there before the first kill."""
    matrix = load_matrix(write_load_matrix(folder / "data", n_questions, samplers=("uniform", "topk", "focus")))
    lines = folder / "lines" / "run"
    compact = RunFolder.compact
    RunFolder.compact = lambda *arguments: None  # type: ignore[method-assign]
    try:
        complete_run(matrix, out=lines)
    finally:
        RunFolder.compact = compact  # type: ignore[method-assign]

    def prepare(run: Path) -> None:
        shutil.copytree(lines.parent, run.parent, symlinks=True)
        # Files of rows are named by the run's path: those of this one are its own, not another's.
        old, new = RunFolder(lines).pool.run_id, RunFolder(run).pool.run_id
        for file in run.parent.glob(f"pool/*/*/rows-{old}-*.jsonl"):
            file.rename(file.with_name(file.name.replace(old, new)))

    return Road("compact", lambda run: complete_run(matrix, out=run), prepare=prepare)


def storing(folder: Path, n_questions: int) -> Road:
    """Select on real clips with an encoder whose embeddings are stored."""
    matrix = _storing_matrix(folder, n_questions)
    return Road("store", lambda run: complete_run(matrix, out=run), digests=rows_and_store)


def _storing_matrix(folder: Path, n_questions: int) -> MatrixConfig:
    document = yaml.safe_load(write_answering_matrix(folder, n_questions, model=_NO_MODEL).read_text())
    # Its embeddings are the same to the bit in any batch, so that rows may be compared byte by byte.
    document |= {"models": [], "encoders": [{"name": "offline", "encoder": "offline"}], "k": [4], "name": "storing"}
    document["samplers"] = ["topk", "focus"]
    document["max_error_share"] = 1
    (folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return load_matrix(folder / "matrix.yaml")


def crashing(folder: Path, n_questions: int, engine: str, *, address: str = "") -> Road:
    """Select as `storing` does, in processes that a decoder seems to end; each start asks failed questions again."""
    from focus_eval.bench.matrix.config import Resources
    from focus_eval.bench.matrix.engines import LocalEngine, RayEngine

    matrix = _storing_matrix(folder, n_questions)

    def command(run: Path) -> None:
        resources = Resources(gpus=0, cpus=1)
        engines: dict[str, Callable[[], Any]] = {
            "local": lambda: LocalEngine(store=None),
            "ray": lambda: RayEngine(address=address, store=None, select=resources, answer=resources),
        }
        complete_run(matrix, out=run, engine=engines[engine](), retry_errors=True)

    # A worker on Ray is no child of the run.
    victims = {"local": lambda pid: [pid], "ray": _ray_workers}
    return Road(f"crash-{engine}", command, kinds=("SIGSEGV",), victims=victims[engine])


def feeding(folder: Path, n_questions: int, engine: str, *, address: str = "") -> Road:
    """Select as `storing` does, from videos that other processes decode; the run, a worker or one of them is killed."""
    from focus_eval.bench.matrix.config import Resources
    from focus_eval.bench.matrix.engines import LocalEngine, RayEngine

    matrix = _storing_matrix(folder, n_questions)
    _grow_past_tiny(Path(str(matrix.benchmarks[0].videos)))
    resources = Resources(gpus=0, cpus=1, decode_cores=2)

    def command(run: Path) -> None:
        if engine == "local":
            runner: Any = LocalEngine(store=None, resources=resources)
        else:
            runner = RayEngine(address=address, store=None, select=resources, answer=resources)
        complete_run(matrix, out=run, engine=runner, retry_errors=True)

    def victims(pid: int) -> list[int]:
        workers = [pid] if engine == "local" else _ray_workers(pid)
        return [pid, *workers, *(child for worker in workers for child in _children(worker))]

    return Road(f"feed-{engine}", command, kinds=("SIGKILL", "SIGTERM", "SIGINT"), victims=victims)


def _grow_past_tiny(videos: Path) -> None:
    """Let a folder of videos be worth processes that decode: a box without content follows one of them."""
    from focus_eval.keyframes.video.feed import TINY_BYTES

    with sorted(videos.glob("*.mp4"))[0].open("ab") as file:
        file.write((TINY_BYTES + 8).to_bytes(4, "big") + b"free" + bytes(TINY_BYTES))


def _children(pid: int) -> list[int]:
    children = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread may have ended meanwhile
            children += [int(word) for word in path.read_text().split()]
    return children


def _ray_workers(pid: int) -> list[int]:
    """Return the processes of our actors on this machine; the run itself where there are none yet."""
    workers = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            workers += [int(path.parent.name)] if path.read_bytes().startswith(b"ray::_PhaseActor") else []
    return workers or [pid]


def answering(folder: Path, n_questions: int, url: str, *, crashes: bool = False) -> Road:
    """Answer through a service, eight requests at once.

    Args:
        crashes: end processes as a decoder does, and ask failed questions again at each start.
    """
    model = {"name": "chat", "model": "focus_gpt4o", "args": _service(url), "frames": 2}
    matrix = load_matrix(write_answering_matrix(folder, n_questions, model=model))
    if crashes:
        return Road("crash-answer", lambda run: complete_run(matrix, out=run, retry_errors=True), kinds=("SIGSEGV",))
    return Road("answer", lambda run: complete_run(matrix, out=run))


def lmms_eval(folder: Path, n_questions: int, url: str, *, feeds: bool = False) -> Road:
    """Answer through a service as lmms-eval's command line does, with `record`.

    Args:
        feeds: choose with an encoder from videos that other processes decode; the run or one of these is killed.
    """
    matrix = load_matrix(write_answering_matrix(folder, n_questions, model=_NO_MODEL))
    tasks = folder / "tasks"
    tasks.mkdir()
    lines = (resource_path("tasks") / f"{TASK}.yaml").read_text().splitlines()
    data = f"dataset_path: {folder / 'data'}"
    task = [data if line.startswith("dataset_path:") else line for line in lines]
    (tasks / f"{TASK}.yaml").write_text("\n".join(task))
    if not feeds:
        return Road("lmms-eval", lambda run: _evaluate(run, tasks, folder / "home", url), digests=_recorded)
    _grow_past_tiny(Path(str(matrix.benchmarks[0].videos)))
    return Road(
        "feed-lmms-eval",
        lambda run: _evaluate(run, tasks, folder / "home", url, sampler="topk", encoder="offline"),
        digests=_recorded,
        kinds=("SIGKILL", "SIGTERM", "SIGINT"),
        victims=lambda pid: [pid, *_children(pid)],
    )


def on_ray(folder: Path, n_questions: int, address: str) -> Road:
    """Select on a Ray cluster that outlives the run, as a cluster of several users does."""
    from focus_eval.bench.matrix.config import Resources

    matrix: MatrixConfig = load_matrix(write_load_matrix(folder, n_questions, samplers=("uniform", "topk", "focus")))
    resources = Resources(gpus=0, cpus=1)

    def command(run: Path) -> None:
        from focus_eval.bench.matrix.engines import RayEngine

        complete_run(matrix, out=run, engine=RayEngine(address=address, store=None, select=resources, answer=resources))

    # A limit on file sizes would end the cluster's own processes, not a write of rows.
    return Road("ray", command, kinds=tuple(kind for kind in KINDS if kind != "cut"))


_NO_MODEL = {"name": "none", "model": "focus_gpt4o", "frames": 2}


def _service(url: str) -> dict[str, Any]:
    os.environ.update(OPENAI_API_KEY="none", OPENAI_API_BASE=url, OPENAI_BASE_URL=url)
    return {"base_url": url, "num_concurrent": 8, "max_retries": 2, "timeout": 20}


def _evaluate(record: Path, tasks: Path, home: Path, url: str, *, sampler: str = "uniform", **options: Any) -> None:
    """Answer the tasks with lmms-eval and the service at `url`, recording rows."""
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    from focus_eval.bench.lmms.models.openai import FocusGPT4o

    os.environ["HF_HOME"] = str(home)
    options |= {"record": str(record), "sampler": sampler, "frames": 2, "max_error_share": 1.0, **_service(url)}
    model = FocusGPT4o(**options)
    simple_evaluate(
        model=model,
        tasks=[TASK],
        task_manager=TaskManager("ERROR", include_path=str(tasks), include_defaults=False, model_name=model.model_id),
        gen_kwargs="max_new_tokens=2",
        datetime_str="now",
        bootstrap_iters=0,
    )


def _recorded(run: Path) -> dict[str, str]:
    """Return the rows of a record folder by cell, kind and question, without what they cost."""
    return {"/".join(key): "\n".join(sorted(texts)) for key, texts in row_texts(run).items()}


def rows_and_store(run: Path) -> dict[str, str]:
    """Return digests of a run's rows and of all that its store holds, by table, in the order of the keys."""
    digests = row_digests(run)
    connection = sqlite3.connect(run.parent / "store.sqlite")
    try:
        digests["store"] = connection.execute("PRAGMA integrity_check").fetchone()[0]
        for table, value in (("embedding", "vector"), ("relevance", "value")):
            arguments = (
                f"SELECT scorer, video, query, frame, {value} FROM {table} JOIN series ON series.id = {table}.series "
                "ORDER BY scorer, video, query, frame"
            )
            digest = hashlib.sha256()
            for row in connection.execute(arguments):
                digest.update(json.dumps([item.hex() if isinstance(item, bytes) else item for item in row]).encode())
            digests[table] = digest.hexdigest()
    finally:
        connection.close()
    return digests
