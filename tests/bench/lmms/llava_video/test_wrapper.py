"""focus_llava_video runs under lmms-eval: the chosen frames reach it, and its answers are the model's own."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.bench.lmms.llava_video.checkpoint import make_setup
from focus_eval.bench.lmms.llava_video.model import LlavaVideo, VideoQuestion, original_frames
from focus_eval.core.errors import InvalidInput, MissingWeights, RunError, UnknownName
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.encoders.preprocess import resize_frames
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from tests.support.bench.llava_video_parity import stage_checkpoint
from tests.support.keyframes.tiny_models import llava_video_tokenizer

TASK = "focus_longvideobench"


class Spy:
    """Stands before a `LlavaVideo` and keeps what it is asked."""

    def __init__(self, model) -> None:
        self._model = model
        self.asked: list[VideoQuestion] = []
        self.batches: list[int] = []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def answer(self, batch, **options):
        self.asked += batch
        self.batches.append(len(batch))
        return self._model.answer(batch, **options)


@pytest.fixture(scope="module")
def make_wrapper(tiny_checkpoint, tmp_path_factory):
    from focus_eval.bench.lmms.llava_video.wrapper import FocusLlavaVideo

    def make(**arguments):
        defaults = {
            "pretrained": str(tiny_checkpoint),
            "device": "cpu",
            "dtype": "float32",
            "sampler": "random",
            "frames": 64,
            "record": str(tmp_path_factory.mktemp("record")),
        }
        return FocusLlavaVideo(**{**defaults, **arguments})

    return make


@pytest.fixture(scope="module")
def wrapper(make_wrapper):
    return make_wrapper()


@pytest.fixture
def spied(wrapper, monkeypatch):
    spy = Spy(wrapper.model)
    monkeypatch.setattr(wrapper, "_model", spy)
    return spy


def show(wrapper, sampler: str, k: int, folder, **options):
    selector = None if sampler == "native" else Selector(sampler=make_sampler(sampler), encoder=None, k=k)
    wrapper.show(
        SamplerChooser(selector) if selector else None,
        frames=k,
        options=replace(wrapper.adapter_options, record=str(folder), **options),
    )


def answers_of(tools, folder) -> dict[str, dict]:
    return {row["question_id"]: row for row in tools.read_record(folder, "answers")}


@pytest.mark.parametrize(("k", "batch"), [(1, 1), (3, 4), (8, 1), (64, 4)])
def test_the_chosen_frames_reach_the_model(wrapper, spied, evaluate, home, tools, tmp_path, monkeypatch, k, batch):
    monkeypatch.setattr(wrapper, "batch_size_per_gpu", batch)
    show(wrapper, "random", k, tmp_path)
    evaluate(wrapper, [TASK])
    rows = {row["query"]: row for row in tools.read_record(tmp_path, "selections")}
    answers = answers_of(tools, tmp_path)
    assert len(spied.asked) == len(rows) == len(answers) == 8
    assert set(spied.batches) == {batch}
    for video_question in spied.asked:
        (row,) = [row for query, row in rows.items() if query in video_question.question]
        decoded = tools.decode_all(home.videos["longvideobench"] / row["video"])[row["keyframes"]]
        assert len(decoded) == min(k, row["n_frames"])
        expected = spied.pixel_values(decoded)
        assert np.array_equal(spied.pixel_values(video_question.frames), expected)
        assert list(video_question.times_seconds) == pytest.approx([frame / 10 for frame in row["keyframes"]])
        assert video_question.duration_seconds == pytest.approx(row["n_frames"] / 10)
        answer = answers[row["question_id"]]
        assert answer["error"] is None
        assert answer["fed_frames"] == row["keyframes"]
        assert answer["tokens"]["vision"] == 30 * len(decoded)
        assert answer["tokens"]["input"] > answer["tokens"]["vision"]


def test_frames_that_the_model_does_not_get_are_an_error(wrapper, evaluate, tools, tmp_path, monkeypatch):
    assert tools.lost_frame_errors(wrapper, evaluate, tmp_path, monkeypatch) == tools.LOST_FRAMES


def test_frames_resized_ahead_are_those_resized_when_asked(wrapper):
    frames = np.random.default_rng(0).integers(0, 256, (2, 61, 37, 3), dtype=np.uint8)
    resized_frames = resize_frames(frames, wrapper.model.image_rules)
    assert resized_frames.shape == (2, 18, 18, 3)
    assert np.array_equal(wrapper.model.pixel_values(resized_frames), wrapper.model.pixel_values(frames))


def test_a_batch_of_four_answers_as_four_batches_of_one(wrapper, evaluate, tools, tmp_path, monkeypatch):
    answers_by_batch = []
    for batch in (1, 4):
        monkeypatch.setattr(wrapper, "batch_size_per_gpu", batch)
        show(wrapper, "uniform", 5, tmp_path / str(batch))
        evaluate(wrapper, [TASK], max_new_tokens=6)
        answers_by_batch.append({key: row["answer"] for key, row in answers_of(tools, tmp_path / str(batch)).items()})
    assert answers_by_batch[0] == answers_by_batch[1]
    assert len(set(answers_by_batch[0].values())) > 4


def test_native_sampling_is_the_original_rule_and_its_answers_the_models_own(
    make_wrapper, evaluate, home, tools, tmp_path
):
    wrapper = make_wrapper(sampler="native", max_frames_num=7, frames=7, times="original", time_instruction=True)
    show(wrapper, "native", 7, tmp_path)
    spy = wrapper._model = Spy(wrapper.model)
    evaluate(wrapper, [TASK], max_new_tokens=6)
    answers = answers_of(tools, tmp_path)
    assert len(answers) == 8
    for video_question in tuple(spy.asked):
        (name,) = [name for name in tools.CLIPS if f"({name})" in video_question.question]
        decoded = tools.decode_all(home.videos["longvideobench"] / f"{name}.mp4")
        frames, times = original_frames(VideoInfo(len(decoded), 10.0), max_frames=7)
        assert np.array_equal(video_question.frames, decoded[frames])
        assert list(video_question.times_seconds) == times.tolist()
        direct = VideoQuestion(
            question=video_question.question,
            frames=decoded[frames],
            times_seconds=times.tolist(),
            duration_seconds=len(decoded) / 10,
        )
        (at,) = [at for at, question in enumerate(tools.QUESTIONS) if question in video_question.question]
        row = answers[f"{name}_{at}"]
        assert row["answer"] == spy.answer([direct], max_new_tokens=6)[0].text
        assert row["frames_fed"] == len(frames)


def test_the_prompt_is_the_protocols_in_the_templates_of_the_preset(make_wrapper, evaluate, tmp_path):
    for preset, start in (
        ("aks", "<|im_start|>system\nAnswer the questions.<|im_end|><|im_start|>user\n"),
        ("lmms_eval", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"),
    ):
        wrapper = make_wrapper(preset=preset, sampler="uniform", frames=2)
        show(wrapper, "uniform", 2, tmp_path / preset)
        spy = wrapper._model = Spy(wrapper.model)
        evaluate(wrapper, [TASK], limit=1)
        first_half, second_half = (spy.tokenizer.decode(half) for half in spy.prompt_ids(spy.asked[0]))
        assert first_half == start
        gap = "" if preset == "aks" else "\n"
        assert second_half == (
            "\nWhat does the man hold? (landscape)\nA. red\nB. blue\nC. green\n"
            "Answer with the option's letter from the given choices directly.\n"
            f"<|im_end|>{gap}<|im_start|>assistant\n"
        )


def test_presets_differ_in_their_video_tokens(make_wrapper, evaluate, tools, tmp_path):
    counts = {}
    for preset in ("aks", "lmms_eval"):
        wrapper = make_wrapper(preset=preset, sampler="uniform", frames=4)
        show(wrapper, "uniform", 4, tmp_path / preset)
        evaluate(wrapper, [TASK], limit=1)
        (row,) = answers_of(tools, tmp_path / preset).values()
        counts[preset] = row["tokens"]["vision"]
    assert counts == {"aks": 4 * 5 * 6, "lmms_eval": 4 * 4 * 5}


@pytest.mark.parametrize(("times", "scale"), [("exact", 1.0), ("original", 25 / 12)])
def test_times_of_chosen_frames_are_exact_unless_the_original_rule_is_asked_for(
    make_wrapper, evaluate, home, tools, tmp_path, times, scale
):
    """A clip of 12.5 fps: the original's stride is 12, so it prints frame / 12."""
    from tests.support.keyframes.synthetic import write_numbered_clip

    write_numbered_clip(home.videos["longvideobench"] / "slow.mp4", 60, width=112, height=84, fps=12.5)
    data = tools.write_parquet(tmp_path / "data", "validation", tools.longvideobench_rows(["slow"], ["Why?"]))
    wrapper = make_wrapper(sampler="uniform", frames=5, times=times, time_instruction="model_card")
    show(wrapper, "uniform", 5, tmp_path / "record")
    spy = wrapper._model = Spy(wrapper.model)
    evaluate(wrapper, [TASK], data=data)
    (row,) = tools.read_record(tmp_path / "record", "selections")
    rate = 12.5 if times == "exact" else 12
    assert list(spy.asked[0].times_seconds) == pytest.approx([frame / rate for frame in row["keyframes"]], abs=1e-6)
    text = spy.tokenizer.decode(spy.prompt_ids(spy.asked[0])[1])
    assert text.startswith("The video lasts for 4.80 seconds, and 5 frames are")
    assert f"{row['keyframes'][-1] / rate:.2f}s.Please" in text


def test_a_context_that_overflows_is_an_error_row_with_the_number_that_fits(wrapper, evaluate, tools, tmp_path):
    show(wrapper, "uniform", 64, tmp_path)
    with pytest.raises(RunError, match=r"questions have no answer.*frames fit"):
        evaluate(wrapper, [TASK], max_new_tokens=3000, limit=2)
    rows = answers_of(tools, tmp_path)
    assert len(rows) == 2
    assert all(row["answer"] is None and "the context holds 4096;" in row["error"] for row in rows.values())


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"preset": "ask"}, UnknownName, "did you mean 'aks'"),
        ({"poolng": "average"}, UnknownName, "did you mean 'pooling'"),
        ({"pooling": "max"}, InvalidInput, "must be bilinear or average or checkpoint, got 'max'"),
        ({"frames": 137}, InvalidInput, "the context holds 4096; 136 frames fit"),
        ({"pretrained": "somebody/else"}, MissingWeights, "hf download somebody/else"),
        ({"pretrained": "tests/bench/lmms"}, MissingWeights, r"no config\.json"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_weight_loads(make_wrapper, monkeypatch, arguments, kind, message):
    def loaded(*args, **options):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("focus_eval.bench.lmms.llava_video.checkpoint.load_network", loaded)
    with pytest.raises(kind, match=message):
        make_wrapper(**arguments)


def test_a_checkpoint_of_another_model_is_refused_with_the_model_to_use(make_wrapper, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_vl"}))
    with pytest.raises(InvalidInput, match="not LLaVA-Video; use focus_qwen2_vl"):
        make_wrapper(pretrained=str(tmp_path))


def test_a_sampler_that_shrinks_frames_is_refused(wrapper, evaluate, tmp_path):
    class Shrinking(SamplerChooser):
        def choose(self, *arguments, **options):
            choices = super().choose(*arguments, **options)
            return [replace(choice, row=replace(choice.row, scales=[1.0, 0.5])) for choice in choices]

    uniform = Selector(sampler=make_sampler("uniform"), encoder=None, k=2)
    wrapper.show(Shrinking(uniform), frames=2, options=replace(wrapper.adapter_options, record=str(tmp_path)))
    with pytest.raises(RunError, match="focus_llava_video can show one size only"):
        evaluate(wrapper, [TASK], limit=1)


def test_closing_releases_the_model(make_wrapper):
    wrapper = make_wrapper(sampler="uniform", frames=2)
    wrapper.close()
    assert wrapper.model is None


def test_the_recorded_weights_answer_under_lmms_eval(
    recorded_llava_video, make_wrapper, evaluate, home, tools, tmp_path
):
    """The original's weights end to end: what lmms-eval is told equals a greedy answer of the parity-tested model."""
    folder = tmp_path / "recorded"
    stage_checkpoint(recorded_llava_video, folder)
    llava_video_tokenizer().save_pretrained(folder)
    wrapper = make_wrapper(pretrained=str(folder), sampler="uniform", frames=3)
    show(wrapper, "uniform", 3, tmp_path / "record")
    evaluate(wrapper, [TASK], max_new_tokens=5, limit=2)
    model = LlavaVideo.load(str(folder), setup=make_setup("aks"), dtype="float32")
    rows = {row["question_id"]: row for row in tools.read_record(tmp_path / "record", "selections")}
    for key, answer in answers_of(tools, tmp_path / "record").items():
        frames = tools.decode_all(home.videos["longvideobench"] / rows[key]["video"])[rows[key]["keyframes"]]
        context = (
            f"{rows[key]['query']}\nA. red\nB. blue\nC. green\n"
            "Answer with the option's letter from the given choices directly.\n"
        )
        video_question = VideoQuestion(question=context, frames=frames)
        assert answer["answer"] == model.answer([video_question], max_new_tokens=5)[0].text
        assert answer["tokens"]["vision"] == 3 * 210
