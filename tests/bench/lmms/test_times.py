"""Models that print or embed the times of frames get the file's own, also where its rate varies."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from focus_eval.bench.answering.frames import FrameBatch
from tests.support.keyframes.synthetic import write_numbered_clip
from tests.support.keyframes.tiny_transformers import glm46v, save_qwen_successor

TASK, SPLIT = "focus_videomme", "test"
# Ten frames a second, then one: at the mean rate frame 30, at 3 s, would be at 13.6.
SECONDS = [*np.arange(0, 3, 0.1), *np.arange(3, 33, 1.0)]


DOCUMENT = {
    "videoID": "vfr", "video_id": "vfr", "question_id": "1", "question": "Which fruit?", "duration": "short",
    "options": ["A. Apples.", "B. Candles.", "C. Berries.", "D. None."], "answer": "C", "domain": "d",
    "sub_category": "s", "task_type": "t",
}  # fmt: skip


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "vfr.mp4"
    return write_numbered_clip(path, 60, ticks=[round(10 * seconds) for seconds in SECONDS], fps=10)


def ask(model, clip, tools, record):
    """Ask one question about the clip; return its selection row."""
    from lmms_eval.api.instance import Instance

    text = {"type": "text", "text": "Which fruit?"}
    look = (
        (lambda _: [str(clip)])
        if model.is_simple
        else (lambda _: [{"role": "user", "content": [{"type": "video", "url": str(clip)}, text]}])
    )
    options = {"max_new_tokens": 1, "until": ["\n\n"]}
    head = (options, look) if model.is_simple else (look, options)
    metadata = {"task": TASK, "repeats": 1, "split": SPLIT, "doc_id": 0}
    request = Instance("generate_until", arguments=("Which fruit?", *head, 0, TASK, SPLIT), idx=0, metadata=metadata)
    model.task_dict = {TASK: {SPLIT: [DOCUMENT]}}
    model.generate_until([request])
    (answer,) = tools.read_record(record, "answers")
    assert answer["error"] is None
    (row,) = tools.read_record(record, "selections")
    return row


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("qwen2_5", "FocusQwen2_5VL"), ("qwen2_5", "FocusQwen2_5VLChat"), ("qwen3", "FocusQwen3VL"),
        ("qwen3", "FocusQwen3VLChat"), ("qwen3_5", "FocusQwen3_5"), ("qwen3_5", "FocusQwen3_5Chat"),
        pytest.param("glm46v", "FocusHuggingface", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_model_gets_the_times_of_a_file_of_variable_rate(kind, name, clip, tools, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.models import huggingface, qwen_vl

    weights = glm46v(tmp_path / "weights") if kind == "glm46v" else save_qwen_successor(tmp_path / "weights", kind)
    limits = {} if kind == "glm46v" else {"min_pixels": 3136, "max_pixels": 20000}
    model = (getattr(qwen_vl, name, None) or getattr(huggingface, name))(
        pretrained=str(weights), device="cpu", sampler="uniform", frames=8, record=str(tmp_path / "record"), **limits
    )
    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    row = ask(model, clip, tools, tmp_path / "record")
    times = np.array(row["times_seconds"])
    assert np.abs(times - np.array(row["keyframes"]) / row["fps"]).max() > 5
    assert np.allclose(times, [SECONDS[frame] for frame in row["keyframes"]], atol=1e-3)
    (metadata,) = [item for call in tap.calls for item in call.get("video_metadata") or []]
    metadata = metadata if isinstance(metadata, dict) else vars(metadata)
    assert np.allclose(np.array(metadata["frames_indices"]) / metadata["fps"], times, atol=1e-3)
    assert metadata["total_num_frames"] / metadata["fps"] == pytest.approx(row["n_frames"] / row["fps"], abs=1e-3)
    if kind.startswith("qwen3"):  # pairs of frames, each under the mean of its two times
        (prompt,) = (tmp_path / "record").rglob("prompt.json")
        printed = [float(text) for text in re.findall(r"<([\d.]+) seconds>", json.loads(prompt.read_text())["text"])]
        assert printed == [float(f"{seconds:.1f}") for seconds in times.reshape(-1, 2).mean(axis=1)]


def test_a_constant_rate_keeps_the_files_own_indices():
    def frame_batch(times):
        pixels = np.zeros((3, 4, 4, 3), dtype=np.uint8)
        return FrameBatch(path="v.mp4", frames=(0, 30, 59), times_seconds=times, fps=30.0, n_frames=60, pixels=pixels)

    assert vars(frame_batch((0.0, 1.016, 1.966)).clock()) == {"rate": 30.0, "ticks": [0, 30, 59], "n_ticks": 60}
    assert vars(frame_batch((0.0, 1.018, 1.966)).clock()) == {"rate": 1000.0, "ticks": [0, 1018, 1966], "n_ticks": 2000}


def test_llava_video_prints_the_files_own_times(clip):
    from focus_eval.bench.answering.frames import PathWithFrames, read_frames
    from focus_eval.bench.lmms.llava_video.wrapper import FocusLlavaVideo
    from focus_eval.keyframes.video import open_video

    with open_video(clip) as reader:
        batch = read_frames(reader, [0, 30, 59])
    model = FocusLlavaVideo.__new__(FocusLlavaVideo)  # no weight takes part
    model.setup = SimpleNamespace(times="exact")
    video_question = model._chosen_frames(PathWithFrames(batch))
    assert list(video_question.times_seconds) == pytest.approx([0, 3, 32], abs=1e-3)
    assert video_question.duration_seconds >= 32


def test_qwen2_5_vl_is_told_the_same_spacing_of_a_clustered_and_an_even_selection():
    from transformers.video_utils import VideoMetadata

    from focus_eval.bench.lmms.models.qwen_vl import metadata_of

    def seconds_per_pair(frames):
        pixels = np.zeros((len(frames), 4, 4, 3), dtype=np.uint8)
        batch = FrameBatch(
            path="v.mp4", frames=tuple(frames), times_seconds=tuple(frame / 10 for frame in frames), fps=10.0,
            n_frames=6000, pixels=pixels,
        )  # fmt: skip
        return 2 / VideoMetadata(**metadata_of(batch)).sampled_fps

    assert seconds_per_pair(range(3000, 3100, 13)) == pytest.approx(150)
    assert seconds_per_pair(range(0, 6000, 750)) == pytest.approx(150)
