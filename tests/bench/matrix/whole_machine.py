"""A machine on which a matrix lacks nothing, for tests that take something away."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pandas as pd
import pytest
import yaml

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.preflight import check_all
from tests.support.keyframes.local_server import Handler, LocalServer
from tests.support.keyframes.random_weights import write_tiny_clip
from tests.support.keyframes.tiny_transformers import save_qwen2_vl

from .test_documents import documents, shards, snapshot

KEY, SERVED_MODEL = "sk-right", "gpt-4o-2024-05-13"


class Listing(Handler):
    """Lists one model to whoever has the key."""

    def do_GET(self):
        accepted = self.headers["Authorization"] == f"Bearer {KEY}"
        body = {"object": "list", "data": [{"id": SERVED_MODEL, "object": "model", "created": 0, "owned_by": "x"}]}
        refused = {"error": {"message": "Incorrect API key provided"}}
        self.send_json(body if accepted else refused, status=200 if accepted else 401)


class Service(LocalServer):
    handler = Listing


@pytest.fixture(scope="module")
def service():
    with Service() as api:
        yield f"{api.url}/v1"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A tiny Qwen2-VL in several shards, and a tiny CLIP."""
    folder = tmp_path_factory.mktemp("weights")
    save_qwen2_vl(folder / "qwen")
    from transformers import Qwen2VLForConditionalGeneration

    model = Qwen2VLForConditionalGeneration.from_pretrained(folder / "qwen")
    (folder / "qwen" / "model.safetensors").unlink()
    model.save_pretrained(folder / "qwen", max_shard_size="100KB")
    assert len(list((folder / "qwen").glob("*.safetensors"))) > 2
    write_tiny_clip(folder / "clip")
    return folder


class Machine:
    """A folder with all that its matrix needs: two benchmarks, two models, two encoders."""

    def __init__(self, root, hub, weights, service):
        self.root, self.hub, self.file = root, hub, root / "table.yaml"
        for name in ("qwen", "clip"):
            shutil.copytree(weights / name, root / name)
        self.matrix = {
            "benchmarks": [
                self.benchmark("longvideobench", "datasets/longvideobench/videos", gated=True, questions=4),
                self.benchmark("videomme", "videomme/data"),
            ],
            "models": [
                {
                    "name": "qwen", "model": "focus_qwen2_vl", "frames": 8, "disk_gigabytes": 17,
                    "args": {"pretrained": str(root / "qwen"), "use_flash_attention_2": False},
                },
                {
                    "name": "gpt4o", "model": "focus_gpt4o", "frames": 8, "needs_gpu": False,
                    "args": {"model_version": SERVED_MODEL, "base_url": service}, "api_key": "OPENAI_API_KEY",
                },
            ],
            "encoders": [
                {"name": "tiny", "encoder": "clip", "options": {"checkpoint": str(root / "clip"), "device": "cpu"}},
                {"name": "other", "encoder": "clip", "options": {"checkpoint": str(root / "clip")}},
            ],
            "samplers": ["uniform", "focus"],
            "seeds": [0, 1],
        }  # fmt: skip
        shards(snapshot(hub), documents())
        self.mme = snapshot(hub, "lmms-eval/Video-MME")
        pd.DataFrame(
            [
                {
                    "duration": "short", "videoID": f"m{n}", "question_id": f"m{n}-1", "question": "What is it?",
                    "options": ["A. one", "B. two"], "answer": "A", "task_type": "x",
                }
                for n in range(4)
            ]
        ).to_parquet(self.mme / "test-00000-of-00001.parquet")  # fmt: skip
        for folder, names in (
            ("datasets/longvideobench/videos", ["v0", "v1"]),
            ("videomme/data", ["m0", "m1", "m2", "m3"]),
        ):
            (root / folder).mkdir(parents=True)
            for name in names:
                (root / folder / f"{name}.mp4").write_bytes(b"x" * 1000)

    def benchmark(self, name, videos, **extra_keys):
        return {
            "name": name, "benchmark": name, "task": f"focus_{name}", "videos": str(self.root / videos),
            "disk_gigabytes": 100, **extra_keys,
        }  # fmt: skip

    def model(self, at=0):
        return self.matrix["models"][at]

    def check(self):
        self.file.write_text(yaml.safe_dump(self.matrix))
        return check_all([(load_matrix(self.file), self.root / "runs" / "table")])


def free_disk(monkeypatch, gigabytes):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, gigabytes * 1e9))
