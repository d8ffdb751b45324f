"""Do lmms-eval's own wrappers and the plugin's give a model the same prompts and frames, and get the same answers?

Each of the paper's models answers Video-MME's task about made clips, with tiny random weights or from a server on this
machine: `lmms_eval --model NAME`, then our wrapper with `sampler=native`. Prints a row per pair, with the last error
of a run that left no results; lmms-eval ends such a run with code 0. Qwen2-VL is also run with decord as the reader.

Run: python -m scripts.checks.compare_stock [MODEL ...]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.bench.lmms_data import write_home
from tests.support.bench.warm_process import WarmProcess
from tests.support.keyframes.chat_server import ChatServer

N_FRAMES = 4


@dataclass(frozen=True)
class Pair:
    """A stock wrapper and ours.

    Args:
        arguments: of both, beside the weights or the service.
        frames_argument: name of the stock wrapper's number of frames.
        reader: the video reader that qwen-vl-utils is told to take; "" leaves the choice to it.
        is_simple: True if the stock wrapper must not be its class for chat requests.
    """

    stock: str
    ours: str
    arguments: str = "device=cpu,device_map=cpu"
    frames_argument: str = "max_frames_num"
    reader: str = ""
    is_simple: bool = False


_QWEN = Pair("qwen2_vl", "focus_qwen2_vl", frames_argument="max_num_frames")
_LLAVA = Pair("llava_hf", "focus_llava_onevision")
_GPT4O = Pair("openai", "focus_gpt4o", "model_version=tiny")
PAIRS = {
    "qwen2_vl_7b": _QWEN,
    "qwen2_vl_7b, decord": replace(_QWEN, reader="decord"),
    "llava_ov_7b": _LLAVA,
    "llava_ov_7b, simple": replace(_LLAVA, is_simple=True),
    "llava_video_7b": Pair("llava_vid", "focus_llava_video"),
    "gpt4o": _GPT4O,
    "gpt4o, decord": replace(_GPT4O, reader="decord"),
}


@dataclass(frozen=True)
class Outcome:
    """Inputs and answers of one run by lmms-eval.

    Args:
        inputs: (digest of the prompt, digest of the frames) of each question, sorted.
        answers: the model's text by the number of the document; {} without results.
        error: the run's last error; "" if it left results.
    """

    code: int
    inputs: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[int, str] = field(default_factory=dict)
    error: str = ""


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = write_home(folder / "home")
        environment = {**home.environment(), "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
        imports, index = ["lmms_eval.__main__"], folder / "official_tasks.json"
        with WarmProcess(imports, folder=folder, task_index=index, cwd=home.root, env=environment) as warm:
            compare(names or [*PAIRS], warm, folder)


def compare(names: Sequence[str], warm: WarmProcess, folder: Path) -> None:
    """Print a row for each of the pairs, run in `warm`; weights and rows go to `folder`."""
    print("| model | stock run | code | answers | ours: code | answers | equal prompts | frames | answers |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        pair = PAIRS[name]
        weights = _weights_argument(name, folder / pair.stock)
        arguments = f"{pair.arguments}{weights}"
        first = run_model(warm, pair, pair.stock, f"{arguments},{pair.frames_argument}={N_FRAMES}")
        record = f"record={folder / 'record' / name.replace(', ', '_')},allow_unparsed=true"
        second = run_model(warm, pair, pair.ours, f"{arguments},sampler=native,frames={N_FRAMES},{record}")
        equal = [sum(a[at] == b[at] for a, b in zip(first.inputs, second.inputs, strict=False)) for at in (0, 1)]
        equal.append(sum(first.answers[number] == second.answers.get(number) for number in first.answers))
        cells = [name, pair.stock, first.code, len(first.answers), second.code, len(second.answers)]
        print("| " + " | ".join(map(str, [*cells, *(equal if first.answers else "---")])) + " |", flush=True)
        for wrapper, outcome in ((pair.stock, first), (pair.ours, second)):
            if outcome.error:
                print(f"\n{wrapper}: {outcome.error}\n", flush=True)


def run_model(warm: WarmProcess, pair: Pair, model: str, arguments: str) -> Outcome:
    """Run lmms-eval's command line in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, ChatServer(keeps_images=True) as server:
        inputs_path = Path(folder) / "inputs.jsonl"
        if "pretrained" not in arguments:
            arguments += f",base_url={server.url}"
        command = [
            "scripts.checks.compare_stock",
            "--record",
            str(inputs_path),
            "--model",
            model,
            "--model_args",
            arguments,
        ]
        command += ["--tasks", "videomme", "--batch_size", "1", "--log_samples", "--output_path", folder]
        command += ["--force_simple"] * pair.is_simple
        command += ["--gen_kwargs", "max_new_tokens=4"]
        variables = {"OPENAI_API_KEY": "any"} | ({"FORCE_QWENVL_VIDEO_READER": pair.reader} if pair.reader else {})
        process = warm.run(command, variables=variables)
        samples = [json.loads(line) for path in Path(folder).rglob("*samples*.jsonl") for line in path.open()]
        answers = {sample["doc_id"]: str(sample["filtered_resps"][0]).strip() for sample in samples}
        lines = inputs_path.read_text().splitlines() if inputs_path.exists() else []
        inputs = [tuple(json.loads(line)) for line in lines] + [
            (_digest(text.encode()), _digest(*images)) for text, images in server.images
        ]
        printed = re.findall(r"Error during evaluation: (.*)\. Please set", process.stdout, flags=re.DOTALL)
        messages = printed or process.stderr.strip().splitlines() or ["no message"]
        error = "" if answers else " ".join(messages[-1].split())
        return Outcome(process.returncode, sorted(inputs), answers, error)


def record_inputs(path: str, arguments: list[str]) -> None:
    """Run lmms-eval here; write the digests of every prompt and its frames that reach a transformers model.

    lmms-eval's cache of encoded pictures goes by `id()`, which a freed picture leaves to a later one: at random it
    sends an earlier frame again (docs/fidelity.md). Each picture has a cache of its own here: runs can be compared.
    """
    import torch
    from lmms_eval.__main__ import cli_evaluate
    from lmms_eval.protocol import ChatMessages
    from transformers import GenerationMixin

    generate, encode_image = GenerationMixin.generate, ChatMessages.encode_image
    ChatMessages.encode_image = lambda messages, image, _, *options: encode_image(messages, image, {}, *options)

    def recorded(network: Any, *args: Any, **inputs: Any) -> Any:
        """Append digests of the text's and of the picture's tensors to the file, then generate."""
        tensors = [value for _, value in sorted(inputs.items()) if isinstance(value, torch.Tensor)]
        digests = [
            _digest(*(value.double().numpy().tobytes() for value in tensors if value.is_floating_point() == is_picture))
            for is_picture in (False, True)
        ]
        with Path(path).open("a") as file:
            file.write(json.dumps(digests) + "\n")
        return generate(network, *args, **inputs)

    GenerationMixin.generate = recorded
    sys.argv = ["lmms_eval", *arguments]
    cli_evaluate()


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _weights_argument(name: str, folder: Path) -> str:
    """Write tiny weights of a model into `folder`, once, and return the argument that names them; "" for a service."""
    from tests.support.keyframes.tiny_models import write_llava_video
    from tests.support.keyframes.tiny_transformers import save_llava_onevision, save_qwen2_vl

    model = name.partition(",")[0]
    if model == "gpt4o":
        return ""
    if not folder.exists():
        folder.mkdir()
        write = {"qwen2_vl_7b": save_qwen2_vl, "llava_ov_7b": save_llava_onevision, "llava_video_7b": write_llava_video}
        write[model](folder)
    return f",pretrained={folder}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.argv[1:2] == ["--record"]:
        record_inputs(sys.argv[2], sys.argv[3:])
    else:
        main(sys.argv[1:])
