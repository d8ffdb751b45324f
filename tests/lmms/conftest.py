"""Tiny random-weight models with their real processors, and data sets in the official layout, made on the spot."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FORCE_QWENVL_VIDEO_READER", "decord")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
LLAVA_TOKENS = ["<|im_start|>", "<|im_end|>", "<image>", "<video>"]


def byte_tokenizer(special: list[str], template: str):
    """A byte-level tokenizer: one token per byte, and the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special
    )
    tokenizer.chat_template = template
    return tokenizer


def save_qwen2_vl(folder: Path, seed: int = 0) -> Path:
    import torch
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={
            "depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14,
        },
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
    )  # fmt: skip
    torch.manual_seed(seed)
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(), video_processor=Qwen2VLVideoProcessor(), tokenizer=tokenizer,
        chat_template=QWEN_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


def save_qwen_successor(folder: Path, kind: str, seed: int = 0) -> Path:
    """A tiny Qwen2.5-VL ("qwen2_5") or Qwen3-VL ("qwen3")."""
    import torch
    import transformers as t

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    text = {
        "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32768, "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
        "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
    }  # fmt: skip
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 32}
    tokens = {
        "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"],
    }  # fmt: skip
    torch.manual_seed(seed)
    images, videos = t.Qwen2VLImageProcessor(), t.Qwen2VLVideoProcessor()
    if kind == "qwen2_5":
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
        config = t.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tokens)
        model, processor = t.Qwen2_5_VLForConditionalGeneration(config), t.Qwen2_5_VLProcessor
    else:
        vision |= {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
        config = t.Qwen3VLConfig(text_config=text, vision_config=vision, **tokens)
        model, processor = t.Qwen3VLForConditionalGeneration(config), t.Qwen3VLProcessor
        images, videos = t.Qwen2VLImageProcessor(patch_size=16), t.Qwen3VLVideoProcessor()
    model.save_pretrained(folder)
    processor(
        image_processor=images, video_processor=videos, tokenizer=tokenizer, chat_template=QWEN_TEMPLATE
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_llava_onevision(folder: Path, seed: int = 0) -> Path:
    import torch
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    tokenizer = byte_tokenizer(LLAVA_TOKENS, LLAVA_TEMPLATE)
    side, patch = 56, 14
    config = LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 32768, "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": side, "patch_size": patch, "vision_use_head": False,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[side, side]], vision_feature_select_strategy="full", vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(seed)
    LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": side, "width": side}
    LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=[[side, side]]),
        video_processor=LlavaOnevisionVideoProcessor(size=size),
        tokenizer=tokenizer, num_image_tokens=(side // patch) ** 2, vision_feature_select_strategy="full",
        chat_template=LLAVA_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models are slower on several threads, most of all where several tests run at once."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory) -> Path:
    return save_qwen2_vl(tmp_path_factory.mktemp("tiny") / "qwen2_vl")


@pytest.fixture(scope="session")
def tiny_llava(tmp_path_factory) -> Path:
    return save_llava_onevision(tmp_path_factory.mktemp("tiny") / "llava_onevision")


@pytest.fixture(scope="session")
def qwen(tiny_qwen, tmp_path_factory):
    from focus_eval.lmms.models.qwen_vl import FocusQwen2VL

    record = tmp_path_factory.mktemp("record")
    return FocusQwen2VL(
        pretrained=str(tiny_qwen), device="cpu", sampler="random", frames=64, record=str(record), max_pixels=50000
    )


@pytest.fixture(scope="session")
def llava(tiny_llava, tmp_path_factory):
    from focus_eval.lmms.models.llava_hf import FocusLlavaOnevision

    record = tmp_path_factory.mktemp("record")
    return FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="random", frames=64, record=str(record)
    )


QUESTIONS = ["What does the man hold?", "Who enters the room last, and why?", "What happens after the rain?"]
CLIPS = {
    "landscape": {"n_frames": 90, "width": 112, "height": 84, "fps": 10},
    "portrait": {"n_frames": 80, "width": 84, "height": 140, "fps": 10},
    "odd": {"n_frames": 70, "width": 97, "height": 61, "fps": 10, "pixel_format": "yuv444p"},
    "few": {"n_frames": 5, "width": 112, "height": 84, "fps": 10},
}


class Home:
    """A folder as $HF_HOME and as a working directory in which the hub's names are local folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hf = root / "hf"
        self.videos = {
            "longvideobench": self.hf / "datasets/longvideobench/videos",
            "videomme": self.hf / "videomme/data",
            "mlvu": self.hf / "mlvu",
            "vsibench": self.hf / "vsibench/arkitscenes",
        }
        self.data = {
            "longvideobench": root / "longvideobench/LongVideoBench",
            "videomme": root / "lmms-eval/Video-MME",
            "mlvu": root / "sy1998/MLVU_dev",
            "vsibench": root / "nyu-visionx/VSI-Bench",
        }

    def environment(self) -> dict[str, str]:
        """For a command run in `root`."""
        return {
            **os.environ,
            "HF_HOME": str(self.hf),
            "HF_DATASETS_CACHE": str(self.root / "datasets_cache"),
            "LMMS_EVAL_DATASETS_CACHE": str(self.root / "datasets_cache"),
        }


def write_parquet(folder: Path, split: str, rows: list[dict]) -> Path:
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def longvideobench_rows(videos: list[str], questions: list[str]) -> list[dict]:
    return [
        {
            "id": f"{video}_{at}", "video_id": video, "video_path": f"{video}.mp4", "question": f"{question} ({video})",
            "option0": "red", "option1": "blue", "option2": "green", "option3": "N/A", "option4": "N/A",
            "duration": CLIPS[video]["n_frames"] / 10 if video in CLIPS else 9.0, "duration_group": 15,
            "correct_choice": at % 3, "question_category": "S2E", "position": [10],
        }
        for video in videos
        for at, question in enumerate(questions)
    ]  # fmt: skip


def _videomme_rows() -> list[dict]:
    return [
        {
            "video_id": video, "duration": "short", "domain": "Knowledge", "sub_category": "Astronomy", "url": "",
            "videoID": video, "question_id": f"{video}-{at}", "task_type": "Counting Problem", "question": question,
            "options": ["A. Apples.", "B. Candles.", "C. Berries.", "D. None."], "answer": "C",
        }
        for video in ("landscape", "portrait")
        for at, question in enumerate(QUESTIONS[:2])
    ]  # fmt: skip


def _mlvu_rows() -> list[dict]:
    return [
        {
            "video_name": f"{video}.mp4", "duration": CLIPS[video]["n_frames"] / 10,
            "question": f"{question}\n(A) A letter\n(B) A book\n(C) A hat\n(D) Nothing\n",
            "candidates": ["A letter", "A book", "A hat", "Nothing"], "answer": "B", "task_type": kind,
        }
        for video, question, kind in (("landscape", QUESTIONS[0], "plotQA"), ("odd", QUESTIONS[1], "count"))
    ]  # fmt: skip


def _vsibench_rows() -> list[dict]:
    kinds = ["easy", "medium", "hard"]
    choices = [
        {
            "id": f"{at}", "dataset": "arkitscenes", "scene_name": "landscape", "question": f"Where is it? ({kind})",
            "question_type": f"object_rel_direction_{kind}", "options": ["A. left", "B. right"], "ground_truth": "A",
        }
        for at, kind in enumerate(kinds)
    ]  # fmt: skip
    count = {
        "id": "7", "dataset": "arkitscenes", "scene_name": "portrait", "question": "How many chairs are there?",
        "question_type": "object_counting", "options": None, "ground_truth": "4",
    }  # fmt: skip
    return [*choices, count]


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Documents and clips of the four benchmarks in the official layout; lmms-eval looks for videos there."""
    from focus_eval.video.synthetic import write_numbered_clip

    made = Home(tmp_path_factory.mktemp("home"))
    for folder in made.videos.values():
        folder.mkdir(parents=True)
        for name, clip in CLIPS.items():
            options = dict(clip)
            write_numbered_clip(folder / f"{name}.mp4", options.pop("n_frames"), **options)
    rows = longvideobench_rows(list(CLIPS), QUESTIONS[:2])
    write_parquet(made.data["longvideobench"], "validation", rows)
    write_parquet(made.data["videomme"], "test", _videomme_rows())
    write_parquet(made.data["mlvu"], "test", _mlvu_rows())
    write_parquet(made.data["vsibench"], "test", _vsibench_rows())
    (made.data["vsibench"] / "README.md").write_text(
        "---\nconfigs:\n- config_name: full\n  data_files:\n  - split: test\n    path: test-*.parquet\n---\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(made.hf))
        patch.setenv("LMMS_EVAL_DATASETS_CACHE", str(made.root / "datasets_cache"))
        import lmms_eval.tasks.mlvu.utils as mlvu
        import lmms_eval.tasks.videomme.utils as videomme
        import lmms_eval.tasks.vsibench.utils as vsibench

        # These read $HF_HOME once, when they are imported; another test may have imported them before.
        for module in (videomme, vsibench):
            patch.setattr(module, "base_cache_dir", str(made.hf))
        patch.setattr(mlvu, "cache_dir_dev", str(made.hf / "mlvu"))
        yield made


def decode_all(path: Path) -> np.ndarray:
    """Every frame of a file in presentation order, by a plain sequential decode: `(n, height, width, 3)`."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


class Tap:
    """Stands before a processor and keeps what goes in."""

    def __init__(self, processor) -> None:
        self.processor = processor
        self.calls: list[dict] = []

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def __call__(self, *args, **inputs):
        assert not args
        self.calls.append(inputs)
        return self.processor(**inputs)

    def by_text(self) -> list[tuple[str, object]]:
        """(prompt, video) per question, batches taken apart."""
        pairs = []
        for call in self.calls:
            texts = call["text"] if isinstance(call["text"], list) else [call["text"]]
            pairs += list(zip(texts, call["videos"], strict=True))
        return pairs


@pytest.fixture
def evaluate(home, tmp_path, monkeypatch):
    """Run tasks through lmms-eval's `simple_evaluate`, on a loaded model."""

    def run(model, tasks, *, max_new_tokens: int = 2, data: Path | None = None, official=False, **rest):
        from lmms_eval.evaluator import simple_evaluate
        from lmms_eval.tasks import TaskManager

        from focus_eval.resources import resource_path

        folder = resource_path("tasks")
        if data is not None:  # the same task files on other documents
            folder = tmp_path / "tasks"
            folder.mkdir(exist_ok=True)
            for task in tasks:
                lines = (resource_path("tasks") / f"{task}.yaml").read_text().splitlines()
                lines = [f"dataset_path: {data}" if line.startswith("dataset_path:") else line for line in lines]
                (folder / f"{task}.yaml").write_text("\n".join(lines))
        monkeypatch.chdir(home.root)
        return simple_evaluate(
            model=model,
            tasks=list(tasks),
            # Indexing every task of lmms-eval takes seconds; the official ones are asked for by the command line tests.
            task_manager=TaskManager(
                "ERROR", include_path=str(folder), include_defaults=official, model_name=model.model_id
            ),
            gen_kwargs=f"max_new_tokens={max_new_tokens}",
            datetime_str="now",
            bootstrap_iters=0,
            **rest,
        )

    return run


def read_record(folder: Path, kind: str) -> list[dict]:
    """The rows below a record folder, whatever its runs are called."""
    files = sorted(folder.glob(f"**/{kind}/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def tools():
    """Helpers of this file, for the tests beside it."""
    return sys.modules[__name__]
