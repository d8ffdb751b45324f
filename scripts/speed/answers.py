"""How fast does a model answer from chosen frames, and is the GPU computing or waiting?

A Qwen2-VL of the 7B's true shape with random weights, through the plugin and lmms-eval's own wrapper: frames are chosen
evenly, a clip is read, its frames are resized by the model's processor, one word is written. Each question has a video
of its own. Stages are means over the questions, in seconds; choosing and decoding run beside them.

Without a GPU, or with --tiny, a tiny model shows that the script runs. With --sleeping SECONDS the tiny model sleeps
in place of computing: what is then idle is what a GPU would wait for this machine's processors. In alternating turns
the inputs of a question are prepared ahead, and when the model is free: the difference is what decides whether
`bench.answering.processors` stays. With --engine vllm the same weights answer in vLLM; without vLLM the script says so
and measures nothing.

Run: python -m scripts.speed.answers [--tiny | --sleeping .25 --turns 3] [--questions 8] [--frames 32] [--size 720p]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from itertools import islice
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
    parser.add_argument("--sleeping", type=float, metavar="SECONDS", help="sleep in place of computing")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--size", choices=list(SIZES), default="720p")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the clip")
    parser.add_argument("--weights", type=Path, help="folder of the checkpoint (default: written each time)")
    args = parser.parse_args()
    if args.engine == "vllm" and find_spec("vllm") is None:
        print("vLLM is not installed here: not measured")
        return
    device = best_device()
    args.tiny = args.tiny or device == "cpu" or args.sleeping is not None
    device = "cpu" if args.sleeping is not None else device
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.perf_counter()
        weights = args.weights or save_qwen2_vl(folder / "weights", shape="tiny" if args.tiny else "7B")
        clip = make_clips(folder, args.size, [args.seconds])[0]
        model = loaded(args, weights, device, folder)
        if args.sleeping is not None:
            model._model = SleepingModel(model._model, args.sleeping)
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


class SleepingModel:
    """A transformers model that sleeps in place of computing, and writes the last token of the prompt again."""

    def __init__(self, model: Any, seconds: float) -> None:
        self._model = model
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        """Return the model's attribute."""
        return getattr(self._model, name)

    def generate(self, *args: Any, **inputs: Any) -> Any:
        """Sleep, and return the prompt with one more token."""
        import torch

        time.sleep(self._seconds)
        prompt_ids = inputs["input_ids"]
        return torch.cat([prompt_ids, prompt_ids[:, -1:]], dim=1)


def table_of(model: Any, clip: Path, args: argparse.Namespace, folder: Path) -> str:
    """Answer a first question, then all others in turns, and return a table with a line for each turn.

    Raises:
        RuntimeError: a question got no answer.
    """
    moments = {"ahead": True, "when free": False} if args.sleeping is not None else {"": model.prepares_ahead}
    document = longvideobench_rows(["landscape"], ["?"])[0]
    clips = [folder / f"video_{at}.mp4" for at in range(args.questions * args.turns * len(moments) + 1)]
    for path in clips:
        path.hardlink_to(clip)
    documents = [
        {**document, "video_path": path.name, "id": f"q{at}", "duration": args.seconds} for at, path in enumerate(clips)
    ]
    model.task_dict = {_TASK: {"test": documents}}
    waiting = iter(requests(model, clips))
    model.generate_until([next(waiting)])  # what is loaded with the first question is not measured
    titles = ["video", "frames", "questions", "prepared", "seconds a question", *_STAGES, "generating", "idle share"]
    lines = [titles, ["---"] * len(titles)]
    for _ in range(args.turns):
        for moment, model.prepares_ahead in moments.items():
            of_turn = list(islice(waiting, args.questions))
            lines.append([args.size, str(args.frames), str(args.questions), moment, *measured(model, of_turn, folder)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured(model: Any, of_turn: list[Any], folder: Path) -> list[str]:
    """Answer the questions; return seconds a question, those of each stage, busy and idle share as text."""
    started = time.perf_counter()
    model.generate_until(of_turn)
    wall = (time.perf_counter() - started) / len(of_turn)
    answers = read_record(folder / "record", "answers")
    if failed := [row["error"] for row in answers if row["error"]]:
        raise RuntimeError(failed[0])
    seconds = Counter[str]()
    for row in answers[-len(of_turn) :]:
        seconds.update(row["seconds"])
    busy = seconds["generate"] / len(of_turn) / wall
    stages = [f"{seconds[stage] / len(of_turn):.2f}" for stage in _STAGES]
    return [f"{wall:.2f}", *stages, f"{busy:.1%}", f"{1 - busy:.1%}"]


def requests(model: Any, clips: list[Path]) -> list[Any]:
    """Return an lmms-eval request about each clip, in the form that the model takes: simple or chat."""
    from lmms_eval.api.instance import Instance

    def video_of(document: Any) -> str:
        return str(clips[0].with_name(document["video_path"]))

    def messages(document: Any) -> list[dict[str, Any]]:
        parts = [{"type": "video", "url": video_of(document)}, {"type": "text", "text": "what is this?"}]
        return [{"role": "user", "content": parts}]

    def arguments(at: int) -> tuple[Any, ...]:
        """Return the arguments of a request in the form that the model's wrapper takes."""
        generation = {"max_new_tokens": 1}
        if model.is_simple:
            return f"{at}?", generation, lambda document: [video_of(document)], at, _TASK, "test"
        return f"{at}?", messages, generation, at, _TASK, "test"

    metadata = {"task": _TASK, "repeats": 1, "split": "test"}
    return [
        Instance(request_type="generate_until", arguments=arguments(at), idx=0, metadata={**metadata, "doc_id": at})
        for at in range(len(clips))
    ]


if __name__ == "__main__":
    main()
