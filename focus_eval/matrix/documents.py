"""Finds the documents of a benchmark's lmms-eval task on this machine; fetches nothing.

They are looked for, in this order: in the config's `dataset` (a local folder), in the hub's cache as
`hf download DATASET --repo-type dataset` leaves them, and in the cache of the `datasets` library, where an earlier
run of lmms-eval has left them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from focus_eval.errors import FocusEvalError, InvalidInput
from focus_eval.matrix.config import BenchmarkConfig
from focus_eval.resources import read_yaml, resource_path

_SUFFIXES = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".arrow": "arrow"}


class MissingDocuments(FocusEvalError):
    """Documents that are not on this machine.

    Args:
        what: what is missing.
        fix: the command that fetches it.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}: {fix}")
        self.what, self.fix = what, fix


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """Where an lmms-eval task takes its documents from.

    Args:
        repository: data set on the hub, or a local folder.
        subset: the data set's configuration; "" for the only one.
        split: e.g. "validation".
        video_folder: its videos' folder below HF_HOME; "" where the task does not say.
    """

    repository: str
    subset: str
    split: str
    video_folder: str = ""

    @property
    def fetch_command(self) -> str:
        """Command that brings the documents, without the videos, into the hub's cache."""
        wanted = " ".join(f'--include "{pattern}"' for pattern in ("*.parquet", "*.json", "*.md"))
        return f"hf download {self.repository} --repo-type dataset {wanted}"


@dataclass(frozen=True)
class DocumentFiles:
    """Files that hold all documents of a split, in order, and what format they have ("parquet", "json" or "arrow")."""

    format: str
    files: tuple[Path, ...]

    @property
    def stamp(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when a file does."""
        return tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in self.files)


def find_documents(config: BenchmarkConfig) -> DocumentFiles:
    """Return the files with the documents of `config.task`.

    Raises:
        MissingDocuments: they are not on this machine; says how to fetch them.
        InvalidInput: a task whose file is not found, or a `dataset` folder without documents of the split.
    """
    source = task_source(config.task)
    if config.dataset:
        # A stated folder is the only place: falling back to a cache could ask another version of the questions.
        found = documents_in(Path(config.dataset), source)
        if found is None:
            raise InvalidInput(
                f"dataset {config.dataset} of {config.name}: no documents of split {source.split!r} "
                f"({source.split}-*.parquet, .jsonl or .json) in this folder"
            )
        return found
    folder = dataset_snapshot(source.repository)
    found = documents_in(folder, source) if folder is not None else None
    found = found or _prepared(source)
    if found is None:
        is_gated = " (gated: accept its terms on its page, then `hf auth login`)" if config.gated else ""
        state = "are not complete in the hub's cache" if folder is not None else "are not on this machine"
        what = f"documents of {config.name} ({source.repository}, split {source.split}) {state}"
        raise MissingDocuments(what, source.fetch_command + is_gated)
    return found


def documents_in(folder: Path, source: TaskSource) -> DocumentFiles | None:
    """Return the documents of `source` in a data set's folder; None where it has none.

    What the data set's card says of its configurations comes first; else the usual names of shards.
    """
    stated = _stated_patterns(folder / "README.md", source)
    usual = [
        f"{place}{source.split}{name}"
        for place in ("", "data/", *([f"{source.subset}/"] if source.subset else []))
        for name in ("-*.parquet", ".parquet", ".jsonl", ".json")
    ]
    # A split may be stated as several files (VSI-Bench's is): all of them are its documents, in the card's order.
    for patterns in [stated, *([item] for item in (*usual, f"*/{source.split}-*.parquet"))]:
        matches = [sorted(folder.glob(pattern)) for pattern in patterns]
        # The card names files that are not here: what is here is not the whole split.
        if patterns is stated and any(matches) and not all(matches):
            return None
        files = tuple(dict.fromkeys(file for match in matches for file in match))
        in_one_place = len({file.parent for file in files}) == 1
        if in_one_place and all(file.suffix in _SUFFIXES and file.is_file() for file in files):
            return DocumentFiles(_SUFFIXES[files[0].suffix], files) if _is_whole(files) else None
    return None


def dataset_snapshot(repository: str) -> Path | None:
    """Return the folder of a data set in the hub's cache (or the local folder itself); None where there is none."""
    if Path(repository).is_dir():
        return Path(repository)
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    # Not snapshot_download: it refuses a snapshot of which only the documents were fetched.
    kept = Path(constants.HF_HUB_CACHE) / f"datasets--{repository.replace('/', '--')}"
    # A cache may hold several snapshots; this is the one that a load without a revision takes.
    reference = kept / "refs" / "main"
    if not reference.is_file():
        return None
    folder = kept / "snapshots" / reference.read_text(encoding="utf-8").strip()
    return folder if folder.is_dir() else None


@cache
def task_source(task: str) -> TaskSource:
    """Return where the lmms-eval task `task` takes its documents from, read from its YAML file.

    Raises:
        InvalidInput: no file of that task, in ours or in lmms-eval's.
    """
    values = _task_values(_task_file(task))
    kwargs = values.get("dataset_kwargs") or {}
    # As lmms-eval: the test split where there is one, else the validation split.
    split = values.get("test_split") or values.get("validation_split") or values.get("training_split")
    if not values.get("dataset_path") or not split:
        raise InvalidInput(f"task {task!r}: its file names no dataset_path or no split")
    return TaskSource(
        repository=str(values["dataset_path"]),
        subset=str(values.get("dataset_name") or ""),
        split=str(split),
        video_folder=str(kwargs.get("cache_dir") or ""),
    )


def _task_file(task: str) -> Path:
    # Ours first, as when the task is loaded (`task_requests`).
    ours = resource_path("tasks") / f"{task}.yaml"
    if task and ours.is_file():
        return ours
    from importlib.util import find_spec

    # Found without importing it: that takes seconds, and a plan needs the file only.
    found = find_spec("lmms_eval")
    folders = [Path(folder) / "tasks" for folder in (found.submodule_search_locations or [])] if found else []
    for folder in folders:
        for file in sorted(folder.rglob(f"{task}.yaml")):
            return file
    raise InvalidInput(f"task {task!r} is known neither to focus-eval nor to lmms-eval (set task, or annotations)")


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file; what its `!function` tags name is not loaded."""


# Loading them would import the task's code, which may need packages that are not here.
_TaskLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _task_values(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = read_yaml(file, _TaskLoader) or {}
    included = values.pop("include", None)
    # A task's own values come after those it includes, and win.
    return {**_task_values(file.parent / included), **values} if included else values


def _stated_patterns(card: Path, source: TaskSource) -> list[str]:
    """Return the patterns of files that a data set's card gives for configuration and split."""
    if not card.is_file():
        return []
    head, *_ = card.read_text(encoding="utf-8").removeprefix("---").partition("\n---")
    try:
        configs = (yaml.safe_load(head) or {}).get("configs") or []
    except (yaml.YAMLError, AttributeError):
        return []
    wanted = [config for config in configs if not source.subset or config.get("config_name") == source.subset]
    patterns: list[str] = []
    # A task without a subset means the first configuration of the card.
    for item in wanted[:1]:
        patterns += _patterns_of(item.get("data_files"), source.split)
    return patterns


def _patterns_of(data_files: Any, split: str) -> list[str]:
    if isinstance(data_files, str):
        return [data_files]
    entries = data_files if isinstance(data_files, list) else []
    patterns: list[str] = []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("split") == split:
            path = entry.get("path")
            patterns += path if isinstance(path, list) else [str(path)]
    return patterns


def _is_whole(files: tuple[Path, ...]) -> bool:
    """Return False where shards named "..-00000-of-00003" are not all there."""
    # Half a data set, from a fetch that was broken off, must not pass for a short one.
    ends = files[0].stem.rsplit("-of-", 1)
    return len(ends) == 1 or not ends[1].isdigit() or len(files) == int(ends[1])


def _prepared(source: TaskSource) -> DocumentFiles | None:
    """Return the documents as the `datasets` library keeps them after it has loaded a data set once."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    places = [os.environ.get("LMMS_EVAL_DATASETS_CACHE"), os.environ.get("HF_DATASETS_CACHE"), str(home / "datasets")]
    folder_name = source.repository.replace("/", "___")
    # Each place once, the most specific variable first.
    for place in dict.fromkeys(item for item in places if item):
        for folder in sorted(Path(place).expanduser().glob(f"{folder_name}/{source.subset or 'default'}/*/*")):
            files = tuple(sorted(folder.glob(f"*-{source.split}*.arrow")))
            # Without the last of these files the library had not finished writing.
            if files and _is_whole(files) and (folder / "dataset_info.json").is_file():
                return DocumentFiles("arrow", files)
    return None
