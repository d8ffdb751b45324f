"""List lmms-eval's task folders whose documents are one video, and say how focus-eval serves each.

    python research/scripts/list_video_tasks.py > research/docs/video_tasks.md

Read from the installed tasks' YAML and the source of their functions; no data set is opened.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lmms_eval.tasks import TaskManager
from lmms_eval.utils import load_yaml_config

from focus_eval.bench.answering.questions import QUESTION_FIELDS
from focus_eval.bench.benchmarks.registry import benchmark_of_task
from focus_eval.core.errors import UnknownName

VIDEO_WORDS = ("video", ".mp4", "clip_path")
IMAGE_WORDS = (".convert(", "Image.open", "image_path", "doc_to_image", 'doc["image', "doc['image")
ORDER = ("declared", "undeclared", "not served")
MEDIA_WORDS = ("audio", "soundfile", "librosa")


@dataclass(frozen=True)
class Verdict:
    """How focus-eval serves a task, or why it does not."""

    kind: str
    reason: str


@cache
def functions(path: Path) -> dict[str, str]:
    """Return the source of every top-level function and class of a Python file, by name."""
    text = path.read_text(encoding="utf-8")
    return {
        node.name: ast.get_source_segment(text, node) or "" for node in ast.parse(text).body if hasattr(node, "name")
    }


def source_of(config: dict[str, Any], key: str, folder: Path) -> str:
    """Return the source of a task's function and of its callees in the same file; "" if `key` names no function."""
    value = getattr(config.get(key), "value", "")
    module, _, name = value.rpartition(".")
    file = folder / f"{module.replace('.', '/')}.py"
    if not name or not file.is_file():
        return ""
    source_by_function = functions(file)
    source = source_by_function.get(name, "")
    return source + "\n".join(
        text for callee, text in source_by_function.items() if callee != name and f"{callee}(" in source
    )


def verdict(name: str, config: dict[str, Any], folder: Path) -> Verdict | None:
    """Judge how one task is served; return None if its documents hold no video."""
    visual = source_of(config, "doc_to_visual", folder)
    if not any(word in visual for word in VIDEO_WORDS):
        return None
    output = config.get("output_type", "generate_until")
    if output != "generate_until":
        return Verdict("not served", f"output type {output}: no text is generated from one request")
    if any(word in visual for word in MEDIA_WORDS):
        return Verdict("not served", "documents with sound")
    if any(word in visual for word in IMAGE_WORDS):
        return Verdict("not served", "documents give images or frames of their own, not a video")
    try:
        benchmark_of_task(name)
    except UnknownName:
        pass
    else:
        return Verdict("declared", "the query is the question; options and evidence are read")
    text = source_of(config, "doc_to_text", folder)
    field = next((word for word in QUESTION_FIELDS if f'"{word}"' in text or f"'{word}'" in text), None)
    if field:
        return Verdict("undeclared", f"the query is the field `{field}`")
    return Verdict("undeclared", "no field of a question, so the query is the whole prompt, as the rows say")


def main() -> None:
    root = Path(__import__("lmms_eval").__file__).parent / "tasks"
    by_folder: dict[str, dict[Verdict, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, entry in sorted(TaskManager(model_name="default").task_index.items()):
        if entry["type"] != "task":
            continue
        path = Path(entry["yaml_path"])
        try:
            config = load_yaml_config(str(path), mode="simple")
        except Exception as error:  # noqa: BLE001 (a task of others that does not load is a line of the table)
            by_folder[path.relative_to(root).parts[0]][Verdict("not served", f"does not load: {error}")].append(name)
            continue
        if task_verdict := verdict(name, config, path.parent):
            by_folder[path.relative_to(root).parts[0]][task_verdict].append(name)
    counts: dict[str, int] = defaultdict(int)
    alike: dict[Verdict, list[str]] = defaultdict(list)
    for folder, tasks_by_verdict in by_folder.items():
        best = min(tasks_by_verdict, key=lambda item: ORDER.index(item.kind))
        counts[best.kind] += 1
        of, n_tasks = len(tasks_by_verdict[best]), sum(map(len, tasks_by_verdict.values()))
        alike[best].append(f"{folder} ({of} of {n_tasks})" if of < n_tasks else folder)
    print("# lmms-eval's tasks whose documents are one video\n")
    print("By `python research/scripts/list_video_tasks.py`, from the YAML and functions of lmms-eval")
    print(
        f"`{version('lmms-eval')}`; no data set was opened. In brackets: how many of a folder's tasks, where not all."
    )
    print("[How to declare one](benchmarks.md).\n")
    for kind in ORDER:
        print(f"## {kind.capitalize()}: {counts[kind]} of {len(by_folder)} folders\n")
        for folder_verdict in sorted((item for item in alike if item.kind == kind), key=lambda item: item.reason):
            reason = folder_verdict.reason
            item = f"- {reason[0].upper()}{reason[1:]}: {', '.join(alike[folder_verdict])}."
            print(textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False))
        print(end="" if kind == ORDER[-1] else "\n")


if __name__ == "__main__":
    main()
