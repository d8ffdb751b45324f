"""The real OpenAI client against a local server that records requests and fails on demand."""

from __future__ import annotations

import base64
import io
import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

KEY = "sk-verysecret-0123456789abcdef"


def completion(text="B", **message):
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": "gpt-4o",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 111, "completion_tokens": 2, "total_tokens": 113},
    }  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers with `replies` in order (status, body, headers, delay in seconds), then with "B"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict] = []
        self.times: list[float] = []
        self.keys: list[str] = []
        self.replies: list[tuple] = []
        self.on_question: dict[str, tuple] = {}
        self.busy, self.busiest = 0, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.times.append(time.monotonic())
            server.keys.append(self.headers["Authorization"])
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
            reply = next((one for text, one in server.on_question.items() if text in prompt_of(body)), None)
            if reply is None:
                reply = server.replies.pop(0) if server.replies else (200, completion())
        status, content, *rest = reply
        time.sleep(rest[1] if len(rest) > 1 else 0)
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (rest[0] if rest else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the client gave up waiting
        with server.lock:
            server.busy -= 1

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def gpt(server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def make(*, simple=False, **arguments):
        from focus_eval.lmms.models.openai import FocusGPT4o, FocusGPT4oChat

        options = {"sampler": "random", "frames": 3, "record": str(tmp_path), "retry_backoff_s": 0.05, **arguments}
        return (FocusGPT4o if simple else FocusGPT4oChat)(base_url=server.url, **options)

    return make


def prompt_of(body):
    return " ".join(part["text"] for message in body["messages"] for part in message["content"] if "text" in part)


def images_of(body):
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
        shown = np.stack([np.asarray(image) for image in images_of(body)])
        assert np.array_equal(shown, frames)
        assert answer["fed_frames"] == row["keyframes"]
        assert answer["tokens"] == {"requests": 1, "images": len(frames), "input": 111, "output": 2}
        assert (answer["answer"], answer["parsed"], answer["error"]) == ("B", "B", None)
        kinds = [part["type"] for part in body["messages"][0]["content"]]
        assert kinds[0] == ("text" if simple else "image_url")
        compared += len(frames)
    assert compared == 3 * 2 * 8 + 2 * 5
    print(f"openai simple={simple}: {compared} frames compared, 0 differ")


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


def test_questions_are_asked_in_parallel_up_to_the_limit(gpt, server, evaluate):
    server.replies = [(200, completion(), {}, 0.5) for _ in range(8)]
    evaluate(gpt(num_concurrent=3), ["focus_longvideobench"])
    assert server.busiest == 3


@pytest.mark.parametrize(
    "failure",
    [
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
        (500, {"error": {"message": "oops"}}),
        (503, "<html>busy</html>"),
        (200, '{"id": "x", "choi'),
        (200, {"error": {"message": "odd"}}),
        (200, completion(), {}, 1.2),
    ],
    ids=["429", "500", "503", "broken JSON", "no choices", "too slow"],
)
def test_what_may_pass_is_tried_again_with_growing_pauses(gpt, server, evaluate, tools, tmp_path, failure):
    server.replies = [failure, failure]
    evaluate(gpt(num_concurrent=1, timeout=0.6), ["focus_videomme"], limit=1)
    (answer,) = tools.read_record(tmp_path, "answers")
    assert (answer["answer"], answer["error"]) == ("B", None)
    assert answer["tokens"]["requests"] == 3
    assert len(server.bodies) == 3
    assert server.times[1] - server.times[0] >= 0.05
    assert server.times[2] - server.times[1] >= 0.1


def test_a_server_that_asks_for_a_pause_gets_it(gpt, server, evaluate):
    server.replies = [(429, {"error": {"message": "wait"}}, {"retry-after": "1"})]
    evaluate(gpt(num_concurrent=1), ["focus_videomme"], limit=1)
    assert server.times[1] - server.times[0] >= 1


@pytest.mark.parametrize(
    ("failure", "requests", "says"),
    [
        ((429, {"error": {"message": "pay first", "code": "insufficient_quota"}}), 1, "pay first"),
        ((400, {"error": {"message": "too many images"}}), 1, "too many images"),
        ((401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}), 1, "Incorrect API key"),
        ((200, completion(None, refusal="I can't help with that")), 1, "refused: I can't help"),
        ((200, completion(None)), 1, "without text"),
        ((500, {"error": {"message": f"key {KEY} broke"}}), 2, "(after 2 requests)"),
        ((200, completion(), {}, 1.5), 2, "timed out"),
    ],
    ids=["quota", "400", "401", "refusal", "empty", "500", "time-out"],
)
def test_a_failure_is_an_error_of_its_question_alone(
    gpt, server, evaluate, tools, tmp_path, capfd, failure, requests, says
):
    from loguru import logger

    sink = logger.add(tmp_path / "everything.log", level=0)
    server.on_question = {"What does the man hold? (portrait)": failure}
    model = gpt(max_retries=2, timeout=0.7, max_error_share=1, num_concurrent=4)
    results = evaluate(model, ["focus_longvideobench"])
    logger.remove(sink)
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}
    failed = answers.pop("portrait_0")
    assert says in failed["error"]
    assert "\n" not in failed["error"]
    assert failed["answer"] is None
    assert failed["tokens"]["requests"] == requests
    assert all(row["answer"] == "B" for row in answers.values())
    assert results["results"]["focus_longvideobench"]["no_answer,none"] == 1
    out = "".join(capfd.readouterr()) + json.dumps(results, default=str)
    everything = out + "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert server.keys[0] == f"Bearer {KEY}"
    assert "Attempt 1/1 failed" in everything  # the wrapper logs what its client raised
    assert KEY not in everything


def test_too_many_failures_fail_the_run_at_its_end(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.errors import RunError

    server.on_question = {"(portrait)": (400, {"error": {"message": "no"}})}
    with pytest.raises(RunError, match="2 of 8 questions have no answer"):
        evaluate(gpt(), ["focus_longvideobench"])
    assert len(tools.read_record(tmp_path, "answers")) == 8  # everything was asked and written down first


def test_frames_of_mixed_sizes_are_sent_as_images_of_these_sizes(gpt, server, evaluate, home):
    from focus_eval.lmms.sources import GivenRows
    from focus_eval.pipeline.selector import Selector
    from focus_eval.samplers.registry import make_sampler

    class Halves(GivenRows):
        def __init__(self):
            super().__init__([], k=3, selection_id="halves")
            self.selector = Selector(sampler=make_sampler("uniform"), encoder=None, k=3)

        def select(self, question, video_path, *, bucket_of=None):
            from dataclasses import replace

            row = self.selector.select(question, video_path, bucket_of=bucket_of)
            return replace(row, scales=[1.0, 0.5, 0.25])

    model = gpt()
    model.show(Halves(), frames=3)
    evaluate(model, ["focus_videomme"], limit=1)
    (body,) = server.bodies
    assert [image.size for image in images_of(body)] == [(112, 84), (56, 42), (28, 21)]


@pytest.mark.parametrize("simple", [False, True])
def test_times_stand_before_the_frames_they_belong_to(gpt, server, evaluate, tools, tmp_path, simple):
    model = gpt(simple=simple, timestamps="true")
    evaluate(model, ["focus_longvideobench"])
    chosen = {row["question_id"]: row for row in tools.read_record(tmp_path, "selections")}
    told = []
    for body in server.bodies:
        (content,) = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
        pairs = itertools.pairwise(content)
        told.append([before.get("text") for before, part in pairs if part["type"] == "image_url"])
    expected = [[f"[{time:.1f} s]" for time in row["times_seconds"]] for row in chosen.values()]
    assert sorted(told) == sorted(expected)


@pytest.mark.parametrize("simple", [False, True])
def test_frames_may_go_as_one_video_of_the_same_jpeg_images(gpt, server, evaluate, home, tools, tmp_path, simple):
    evaluate(gpt(simple=simple, as_video="true", jpeg_quality=90), ["focus_longvideobench"])
    as_video = {prompt_of(body): body for body in server.bodies}
    server.bodies.clear()
    evaluate(gpt(simple=simple, jpeg_quality=90, record=str(tmp_path / "images")), ["focus_longvideobench"])
    assert len(as_video) == len(server.bodies) == 8
    for body in server.bodies:
        video_body = as_video[prompt_of(body)]
        assert video_body["media_io_kwargs"] == {"video": {"num_frames": -1}}
        (part,) = [
            part for message in video_body["messages"] for part in message["content"] if part["type"] not in ("text",)
        ]
        kind, _, data = part["video_url"]["url"].partition(";base64,")
        urls = [
            part["image_url"]["url"]
            for message in body["messages"]
            for part in message["content"]
            if part["type"] == "image_url"
        ]
        assert kind == "data:video/jpeg"
        assert data.split(",") == [url.partition("base64,")[2] for url in urls]  # byte for byte, in order


def test_a_cap_on_cost_ends_the_run_and_keeps_what_was_paid_for(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.errors import RunError

    # An answer costs 111 * 5 + 2 * 15 = 585 millionths of a dollar: the third reaches the cap.
    model = gpt(max_cost=0.0015, price_input=5, price_output=15, num_concurrent=1)
    with pytest.raises(RunError, match=r"max_cost=0\.0015 dollars are spent"):
        evaluate(model, ["focus_longvideobench"])
    answers = tools.read_record(tmp_path, "answers")
    assert len(server.bodies) == len(answers) == 3
    assert all(row["error"] is None for row in answers)


def test_answers_under_way_when_the_cap_is_reached_are_kept(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.errors import RunError

    server.replies = [(200, completion(), {}, 0.2)] * 8
    model = gpt(max_cost=0.0005, price_input=5, price_output=15, num_concurrent=4)
    with pytest.raises(RunError, match="max_cost"):
        evaluate(model, ["focus_longvideobench"])
    answers = tools.read_record(tmp_path, "answers")
    assert 4 <= len(server.bodies) == len(answers) < 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_cost": 1}, "needs price_input and price_output"),
        ({"max_cost": -1, "price_input": 1, "price_output": 1}, "0 or above"),
        ({"timestamps": "true", "as_video": "true"}, "sends no images"),
        ({"timestamps": "yes"}, "true or false"),
    ],
)
def test_a_wrong_option_of_the_request_is_refused_before_anything_is_sent(gpt, server, arguments, message):
    from focus_eval.errors import InvalidInput

    with pytest.raises(InvalidInput, match=message):
        gpt(**arguments)
    assert not server.bodies
