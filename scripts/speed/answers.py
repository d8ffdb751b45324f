"""How fast does a model answer from chosen frames, and is the GPU computing or waiting?

A Qwen2-VL of the 7B's true shape with random weights, through the plugin and lmms-eval's own wrapper: a clip is read,
its frames are resized by the model's processor, one word is written. Two passes over the same questions; the second,
with all selections made, is printed. Stages are means over the questions, in seconds; decoding runs beside them.

Without a GPU, or with --tiny, a tiny model shows that the script runs. With --engine vllm the same weights answer in
vLLM; without vLLM the script says so and measures nothing.

Run: python scripts/speed/answers.py [--tiny] [--engine transformers] [--questions 8] [--frames 32] [--size 720p]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from focus_eval.bench.matrix.machine import best_device
from focus_eval.keyframes.pipeline.timing import device_name
from scripts.node.clips import SIZES, make_clips
from tests.support.bench.lmms_data import longvideobench_rows, read_record
from tests.support.keyframes.tiny_transformers import save_qwen2_vl

_TASK = "focus_longvideobench"
_STAGES = ("idle", "preprocess", "generate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--size", choices=list(SIZES), default="720p")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the clip")
    parser.add_argument("--weights", type=Path, help="folder of the checkpoint (default: written each time)")
    args = parser.parse_args()
    if args.engine == "vllm" and find_spec("vllm") is None:
        print("vLLM is not installed here: not measured")
        return
    device = best_device()
    args.tiny = args.tiny or device == "cpu"
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.perf_counter()
        weights = args.weights or save_qwen2_vl(folder / "weights", shape="tiny" if args.tiny else "7B")
        clip = make_clips(folder, args.size, [args.seconds])[0]
        model = loaded(args, weights, device, folder)
        shape = "tiny, its figures mean nothing" if args.tiny else "of the 7B's shape"
        print(f"# Qwen2-VL {shape}, random weights, {args.engine}, {device_name(device)}")
        print(f"written and loaded in {time.perf_counter() - started:.0f} s\n")
        print(table_of(model, clip, args, folder))


def loaded(args: argparse.Namespace, weights: Path, device: str, folder: Path) -> Any:
    """Load the checkpoint in `weights` into the plugin's model for `args.engine`."""
    plugin_arguments = {"sampler": "uniform", "frames": args.frames, "record": str(folder / "record"), "batch_size": 1}
    if args.engine == "vllm":
        from focus_eval.bench.lmms.models.vllm import FocusVLLM

        return FocusVLLM(model=str(weights), max_model_len=32768, dtype="bfloat16", **plugin_arguments)
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    return FocusQwen2VL(pretrained=str(weights), device=device, device_map=device, **plugin_arguments)


def table_of(model: Any, clip: Path, args: argparse.Namespace, folder: Path) -> str:
    """Answer all questions twice and return the table of the second pass.

    Raises:
        RuntimeError: a question got no answer.
    """
    document = longvideobench_rows(["landscape"], ["?"])[0]
    documents = [
        {**document, "video_path": clip.name, "id": f"q{at}", "duration": args.seconds} for at in range(args.questions)
    ]
    model.task_dict = {_TASK: {"test": documents}}
    for _ in range(2):
        started = time.perf_counter()
        model.generate_until(requests(model, clip, args.questions))
        wall = (time.perf_counter() - started) / args.questions
    answers = read_record(folder / "record", "answers")[-args.questions :]
    if failed := [row["error"] for row in answers if row["error"]]:
        raise RuntimeError(failed[0])
    seconds = Counter[str]()
    for row in answers:
        seconds.update(row["seconds"])
    cells = [args.size, str(args.frames), str(args.questions), f"{wall:.2f}"]
    cells += [f"{seconds[stage] / args.questions:.2f}" for stage in _STAGES]
    busy = seconds["generate"] / args.questions / wall
    titles = ["video", "frames", "questions", "seconds a question", *_STAGES, "generating"]
    lines = (titles, ["---"] * len(titles), [*cells, f"{busy:.0%}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def requests(model: Any, clip: Path, n: int) -> list[Any]:
    """Return `n` lmms-eval requests about `clip`, in the form that the model takes: simple or chat."""
    from lmms_eval.api.instance import Instance

    def messages(document: Any) -> list[dict[str, Any]]:
        parts = [{"type": "video", "url": str(clip)}, {"type": "text", "text": "what is this?"}]
        return [{"role": "user", "content": parts}]

    def arguments(at: int) -> tuple[Any, ...]:
        """Return the arguments of a request in the form that the model's wrapper takes."""
        generation = {"max_new_tokens": 1}
        if model.is_simple:
            return f"{at}?", generation, lambda document: [str(clip)], at, _TASK, "test"
        return f"{at}?", messages, generation, at, _TASK, "test"

    metadata = {"task": _TASK, "repeats": 1, "split": "test"}
    return [
        Instance(request_type="generate_until", arguments=arguments(at), idx=0, metadata={**metadata, "doc_id": at})
        for at in range(n)
    ]


if __name__ == "__main__":
    main()
