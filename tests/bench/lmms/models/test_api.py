"""The real OpenAI client against a local server that records requests and fails on demand."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from .conftest import completion, prompt_of


def images_of(body):
    """Return the images that a request carries; fails if an image is not what its URL states."""
    urls = [
        part["image_url"]["url"]
        for message in body["messages"]
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    kinds = {url.partition(";")[0] for url in urls}
    images = [Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))) for url in urls]
    assert {f"data:image/{image.format.lower()}" for image in images} == kinds
    return images


def rows_by_question(tools, folder):
    answers = {row["question_id"]: row for row in tools.read_record(folder, "answers")}
    return {row["query"]: (row, answers[row["question_id"]]) for row in tools.read_record(folder, "selections")}


@pytest.mark.parametrize(("simple", "num_concurrent"), [(True, 32), (False, 32), (True, 1), (False, 1)])
def test_the_frames_in_the_payload_are_the_chosen_ones(
    gpt, server, evaluate, home, tools, tmp_path, simple, num_concurrent
):
    evaluate(gpt(simple=simple, frames=8, num_concurrent=num_concurrent), ["focus_longvideobench"])
    rows = rows_by_question(tools, tmp_path)
    assert len(server.bodies) == len(rows) == 8
    compared = 0
    for body in server.bodies:
        (row, answer) = next(pair for query, pair in rows.items() if query in prompt_of(body))
        frames = tools.decode_all(home.videos["longvideobench"] / row["video"])[row["keyframes"]]
        sent_frames = np.stack([np.asarray(image) for image in images_of(body)])
        assert np.array_equal(sent_frames, frames)
        assert answer["fed_frames"] == row["keyframes"]
        assert answer["tokens"] == {"requests": 1, "images": len(frames), "input": 111, "output": 2}
        assert (answer["answer"], answer["parsed"], answer["error"]) == ("B", "B", None)
        kinds = [part["type"] for part in body["messages"][0]["content"]]
        assert kinds[0] == ("text" if simple else "image_url")
        compared += len(frames)
    assert compared == 3 * 2 * 8 + 2 * 5
    print(f"openai simple={simple}: {compared} frames compared, 0 differ")


@pytest.mark.parametrize("simple", [True, False])
def test_images_that_a_request_lacks_are_an_error(gpt, evaluate, tools, tmp_path, monkeypatch, simple):
    from focus_eval.bench.lmms.models.openai import QuestionClient

    make = QuestionClient.__init__
    monkeypatch.setattr(
        QuestionClient,
        "__init__",
        lambda self, *args, urls, **options: make(self, *args, urls=urls and urls[:-2], **options),
    )
    model = gpt(simple=simple, frames=6)
    assert tools.lost_frame_errors(model, evaluate, tmp_path / "lost", monkeypatch) == tools.LOST_FRAMES


@pytest.mark.parametrize("simple", [True, False])
def test_jpeg_and_a_longest_side_shrink_what_is_sent(gpt, server, evaluate, tools, tmp_path, simple):
    evaluate(gpt(simple=simple, jpeg_quality=80, max_side=56), ["focus_videomme"])
    sizes = set()
    for body in server.bodies:
        for image in images_of(body):
            assert image.format == "JPEG"
            sizes.add(image.size)
    assert sizes == {(56, 42), (34, 56)}  # 112 x 84, and portrait 84 x 140


def test_an_image_above_the_limit_is_an_error_that_says_what_to_set(gpt, server, evaluate, tools, tmp_path):
    evaluate(gpt(max_size_in_mb=0.0001, max_error_share=1), ["focus_videomme"])
    answers = tools.read_record(tmp_path, "answers")
    assert all("jpeg_quality or max_side" in row["error"] for row in answers)
    assert server.bodies == []


def test_frames_of_mixed_sizes_are_sent_as_images_of_these_sizes(gpt, server, evaluate, home):
    from focus_eval.bench.answering.choosing import SamplerChooser
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    class Halves(Selector):
        def attempt(self, *arguments, **source):
            outcome = super().attempt(*arguments, **source)
            return replace(outcome, row=replace(outcome.row, scales=[1.0, 0.5, 0.25]))

    model = gpt()
    model.show(SamplerChooser(Halves(sampler=make_sampler("uniform"), encoder=None, k=3)), frames=3)
    evaluate(model, ["focus_videomme"], limit=1)
    (body,) = server.bodies
    assert [image.size for image in images_of(body)] == [(112, 84), (56, 42), (28, 21)]


@pytest.mark.parametrize("simple", [True, False])
def test_a_service_that_thinks_aloud_is_scored_by_its_answer_in_rows_and_results(
    gpt, server, evaluate, tools, tmp_path, simple
):
    whole, cut = "<think>It may be A or C.</think>\nC", "<think>It may be A. Or is the answer B"
    server.replies = [(200, completion(whole))] * 2 + [(200, completion(cut))] * 2
    model = gpt(simple=simple, num_concurrent=1)
    results = evaluate(model, ["focus_videomme"])["results"]["focus_videomme"]
    answers = tools.read_record(tmp_path, "answers")
    assert [(row["answer"], row["parsed"], row.get("is_cut", False)) for row in answers] == [
        (whole, "C", False), (whole, "C", False), (cut, None, True), (cut, None, True)
    ]  # fmt: skip
    assert results["unparsed,none"] == 2
    assert results["accuracy,none"] == sum(row["score"] for row in answers) / 4 == 0.5


@pytest.mark.parametrize("simple", [True, False])
def test_the_time_of_each_frame_is_written_before_it_if_asked(gpt, server, evaluate, tools, tmp_path, simple):
    evaluate(gpt(simple=simple, times=True), ["focus_longvideobench"])
    rows = rows_by_question(tools, tmp_path)
    assert len(server.bodies) == len(rows) == 8
    for body in server.bodies:
        row = next(row for query, (row, _) in rows.items() if query in prompt_of(body))
        parts = body["messages"][0]["content"]
        lead_parts = [parts[at - 1] for at, part in enumerate(parts) if part["type"] == "image_url"]
        assert [part["text"] for part in lead_parts] == [f"<{seconds:.1f} seconds>" for seconds in row["times_seconds"]]
    (prompt,) = tmp_path.rglob("prompt.json")
    assert "seconds>" in prompt.read_text()


def test_times_are_another_cell_and_need_chosen_frames(gpt, evaluate, tools, tmp_path):
    for times in (False, True):
        evaluate(gpt(times=times), ["focus_videomme"], limit=1)
    assert len(list(tmp_path.glob("*/answers/*/cell.json"))) == 2
    evaluate(gpt(sampler="native", times=True, record=str(tmp_path / "own"), max_error_share=1), ["focus_videomme"])
    assert {"times=true" in row["error"] for row in tools.read_record(tmp_path / "own", "answers")} == {True}
