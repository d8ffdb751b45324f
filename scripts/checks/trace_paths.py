#!/usr/bin/env python3
"""Count the files and functions of the package that a call crosses, from question to row.

    python -m scripts.checks.trace_paths [--list] [uniform] [focus] [import] [answer] [question]

Traced with `sys.setprofile`, threads included, each path in a process of its own: a selection with `uniform` and with
`focus` on a small made clip (made once before, so that imports and caches do not count), the import of a log of two
lines, `answer`, a first start of lmms-eval with one question (arguments, registries, a tiny Qwen2-VL, task, question,
end), and `question`, another question to the loaded model, from `generate_until` to its rows (both need the extra
`lmms`). `--list` names the functions by file.

Counted are functions with a name. Comprehensions, generator expressions and lambdas are lines of the function around
them, which CPython 3.11 enters as calls and 3.12 in part no longer does; they are stated apart.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(ROOT / "focus_eval") + os.sep
sys.path.insert(0, str(ROOT))

Functions = dict[str, set[str]]


def trace(call: Callable[[], object]) -> Functions:
    """Run `call` and return the names of the package's functions that it entered, by file."""
    functions_by_file: Functions = defaultdict(set)

    def note_call(frame: FrameType, event: str, _: object) -> None:
        """Note the function if it is one of the package's and is being called."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            name = getattr(code, "co_qualname", f"{code.co_name}:{code.co_firstlineno}")
            functions_by_file[code.co_filename.removeprefix(PACKAGE)].add(name)

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return functions_by_file


def prepare_selection(folder: Path, sampler: str) -> Callable[[], object]:
    """Return a call that selects 8 keyframes of a made clip."""
    from focus_eval import select_keyframes
    from tests.support.keyframes.clips import write_clip

    clip = write_clip(folder / "clip.mp4", n_frames=90, width=64, height=48)
    return lambda: select_keyframes(clip, query="a red ball", k=8, sampler=sampler)


def prepare_import(folder: Path) -> Callable[[], object]:
    """Return a call that imports a log of two lines as a run."""
    from typer.testing import CliRunner

    from focus_eval.cli import app

    log = folder / "log"
    log.mkdir()
    verdict = {"answer": "B", "parsed_pred": "B"}
    lines = [
        {
            "doc_id": number,
            "doc": {"video_name": f"{number}.mp4", "question": f"why {number}?", "indices": [1, 2]},
            "target": "B",
            "filtered_resps": ["B"],
            "acc": verdict,
        }
        for number in range(2)
    ]
    (log / "20260101_120000_samples_my_task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = {
        "results": {"my_task": {"acc,none": 1.0}},
        "configs": {"my_task": {"test_split": "validation", "metric_list": [{"metric": "acc"}]}},
        "n-samples": {"my_task": {"effective": 2}},
        "config": {"model": "some_vl", "model_args": "pretrained=org/Model-7B,max_num_frames=2"},
    }
    (log / "20260101_120000_results.json").write_text(json.dumps(results))
    rates = folder / "rates.csv"
    rates.write_text("id,duration_s,fps\n0,100,25\n1,300,25\n")
    words = ["import", "lmms", str(log), "--frames-field", "indices", "--rates", str(rates)]
    run_numbers = itertools.count()

    def run_import() -> None:
        """Import once more, each time into a new run."""
        out = folder / f"run-{next(run_numbers)}"
        result = CliRunner().invoke(app, [*words, "--out", str(out)], catch_exceptions=False)
        if result.exit_code:
            raise SystemExit(result.output)

    return run_import


def load_tiny_model(folder: Path) -> Callable[[], Any]:
    """Return a call that loads a tiny Qwen2-VL behind the plugin, with frames that `uniform` chooses."""
    os.environ.setdefault("FORCE_QWENVL_VIDEO_READER", "decord")
    from tests.support.bench.lmms_data import write_home
    from tests.support.keyframes.tiny_transformers import save_qwen2_vl

    home = write_home(folder / "home")
    os.environ |= home.environment()
    os.chdir(home.root)
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    checkpoint = save_qwen2_vl(folder / "qwen2_vl")
    record = str(folder / "record")
    return lambda: FocusQwen2VL(pretrained=str(checkpoint), device="cpu", sampler="uniform", frames=4, record=record)


def task_manager(model: Any) -> Any:
    """Return lmms-eval's task manager for the tasks of this package."""
    from lmms_eval.tasks import TaskManager

    from focus_eval.core.resources import resource_path

    folder = str(resource_path("tasks"))
    return TaskManager("ERROR", include_path=folder, include_defaults=False, model_name=model.model_id)


def prepare_answer(folder: Path) -> Callable[[], object]:
    """Return a call in which lmms-eval loads a model and asks it one question of LongVideoBench."""
    load = load_tiny_model(folder)
    from lmms_eval.evaluator import simple_evaluate

    def answer() -> None:
        """Load the model and ask, as lmms-eval does."""
        model = load()
        tasks = task_manager(model)
        simple_evaluate(
            model=model,
            tasks=["focus_longvideobench"],
            task_manager=tasks,
            limit=1,
            gen_kwargs="max_new_tokens=2",
            bootstrap_iters=0,
            datetime_str="now",
        )

    return answer


def prepare_question(folder: Path) -> Callable[[], object]:
    """Return a call that asks a loaded model the next question of LongVideoBench."""
    model = load_tiny_model(folder)()
    from lmms_eval.tasks import get_task_dict

    name = "focus_longvideobench"
    task = get_task_dict([name], task_manager(model))[name]
    task.build_all_requests(limit=None, rank=0, world_size=1)
    model.task_dict[name] = task.dataset
    for request in task.instances:
        request.args[1]["max_new_tokens"] = 2
    requests = iter(task.instances)
    return lambda: model.generate_until([next(requests)])


TRACED_WARM = {"uniform", "focus", "question"}
PATHS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "uniform": lambda folder: prepare_selection(folder, "uniform"),
    "focus": lambda folder: prepare_selection(folder, "focus"),
    "import": prepare_import,
    "answer": prepare_answer,
    "question": prepare_question,
}


def main() -> None:
    """Print the number of files and functions of each path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--list", action="store_true", help="name the functions by file")
    arguments = parser.parse_args()
    if unknown := set(arguments.paths) - PATHS.keys():
        parser.error(f"no path {min(unknown)!r}; there are: {', '.join(PATHS)}")
    names = arguments.paths or list(PATHS)
    if len(names) > 1:
        options = ["--list"] if arguments.list else []
        for name in names:
            subprocess.run([sys.executable, "-m", "scripts.checks.trace_paths", *options, name], cwd=ROOT, check=True)
        return
    (name,) = names
    with tempfile.TemporaryDirectory() as folder:
        call = PATHS[name](Path(folder))
        with contextlib.redirect_stdout(io.StringIO()):
            if name in TRACED_WARM:
                call()
            functions_by_file = trace(call)
    n_entered = sum(map(len, functions_by_file.values()))
    names_by_file = {
        file: names
        for file, functions in functions_by_file.items()
        if (names := {function for function in functions if not function.endswith(">")})
    }
    n_functions = sum(map(len, names_by_file.values()))
    expressions = f"{n_entered - n_functions} comprehensions and lambdas in them"
    print(f"{name}: {len(names_by_file)} files, {n_functions} functions ({expressions})", flush=True)
    for file, functions in sorted(functions_by_file.items()) if arguments.list else ():
        print(f"  {file}: {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
