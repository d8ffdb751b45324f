"""`focus-eval ask` with the client of a service and with a local checkpoint: the answer, what it rests on, its cost."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval import open_video, select_keyframes
from focus_eval.cli import app
from focus_eval.core.errors import AnswerError, InvalidInput, RunError
from focus_eval.keyframes.llms.registry import make_llm
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.chat_server import ChatServer

QUESTION = "How many bars are there?"
EVEN = ("--sampler", "uniform", "-k", "3")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "bars.mp4"
    with ClipWriter(path, width=64, height=48, fps=10) as writer:
        for number in range(60):
            pixels = np.full((48, 64, 3), 40, np.uint8)
            pixels[:, number] = 200
            writer.write(pixels)
    return path


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("openai", reason="the extra llm is not installed")
    with ChatServer(reply_to=lambda body: ("Two\x1b[2J bars.", {}), keeps_images=True) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def ask(*arguments):
    result = CliRunner().invoke(app, ["ask", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_service_sees_the_keyframes_with_their_times_and_the_answer_says_what_it_rests_on(clip, server):
    output = ask(clip, QUESTION, "--llm", "chat:model=m;price_input=10;price_output=1000", *EVEN)
    [(text, images)] = server.images
    assert (text, len(images)) == (
        f"The pictures are frames of one video, in this order: 0.0 s, 2.9 s, 5.9 s.\n{QUESTION}",
        3,
    )
    assert output.startswith("Two\ufffd[2J bars.\n")
    assert [int(line.split()[3]) for line in output.splitlines() if line.startswith("│ bars")] == [0, 29, 59]
    assert "model: chat (m, 1024 px, JPEG 90, temperature 0, seed 0), 100 + 1 tokens, 0.0020 dollars" in output
    assert re.search(r"answer \d+\.\d\d", output)


def test_json_holds_answer_usage_and_selection_and_frames_are_written_after_the_answer(clip, server, tmp_path):
    record = json.loads(ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN, "--json", "--frames", tmp_path / "frames"))
    assert (record["question"], record["llm"]) == (QUESTION, "chat")
    assert record["usage"] == {"requests": 1, "input": 100, "output": 1}  # no prices, so no dollars
    assert (record["selection"]["keyframes"], record["selection"]["query"]) == ([0, 29, 59], QUESTION)
    assert len([*(tmp_path / "frames").iterdir()]) == 3


def test_a_local_checkpoint_says_what_it_says_to_the_same_frames(clip, tmp_path):
    pytest.importorskip("transformers")
    from tests.support.keyframes.tiny_transformers import save_qwen2_vl

    llm = f"local:checkpoint={save_qwen2_vl(tmp_path / 'model')};device=cpu"
    record = json.loads(ask(clip, QUESTION, "--llm", llm, *EVEN, "--max-tokens", "4", "--json"))
    with open_video(clip) as reader:
        pictures = reader.read(np.array([0, 29, 59]))
    prompt = f"The pictures are frames of one video, in this order: 0.0 s, 2.9 s, 5.9 s.\n{QUESTION}"
    reply = make_llm(llm).ask(prompt, [*pictures], max_tokens=4)
    assert (record["answer"], record["usage"]) == (reply.text, {**reply.usage, "dollars": 0.0})


def test_a_model_that_cannot_answer_is_named_before_a_frame_is_decoded(clip, server, monkeypatch, tmp_path):
    frames = tmp_path / "frames"
    with pytest.raises(InvalidInput, match="which model"):
        ask(clip, QUESTION)
    with pytest.raises(InvalidInput, match="must name a model that sees pictures"):
        ask(clip, QUESTION, "--llm", "scripted", *EVEN)
    with pytest.raises(InvalidInput, match="the question is empty"):
        ask(clip, " ", "--llm", "chat:model=m", "--query", "a bar")
    server.refuses_keys = True
    with pytest.raises(InvalidInput, match=r"refuses OPENAI_API_KEY \(401\)"):
        ask(clip, QUESTION, "--llm", "chat:model=m", "--frames", frames)
    assert not frames.exists()
    with pytest.raises(AnswerError, match="401"):
        select_keyframes(clip, query="a bar", k=1, sampler="uniform").ask(make_llm("chat:model=m"))


SRT = "1\n00:00:00,000 --> 00:00:01,000\nOne bar.\n\n2\n00:00:01,500 --> 00:00:02,000\nnot shown\n\n"
SRT += "3\n00:00:02,500 --> 00:00:07,000\nTwo <b>bars</b>.\n"


def test_a_model_gets_the_subtitles_of_the_keyframes_and_select_shows_them_in_a_column(clip, server, tmp_path):
    (tmp_path / "bars.srt").write_text(SRT)
    output = ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN, "--subtitles", tmp_path / "bars.srt")
    [(text, _)] = server.images
    lines = "This video's subtitles are listed below: \nOne bar.\nTwo bars.\n"
    assert text == f"The pictures are frames of one video, in this order: 0.0 s, 2.9 s, 5.9 s.\n{lines}{QUESTION}"
    rows = [line.split("│")[-2].strip() for line in output.splitlines() if line.startswith("│ bars")]
    assert rows == ["One bar.", "Two bars.", "Two bars."]
    select = ["select", str(clip), *EVEN, "--subtitles", str(tmp_path / "bars.srt")]
    printed = CliRunner().invoke(app, select).stdout
    assert [line.split("│")[-2].strip() for line in printed.splitlines() if line.startswith("│")] == rows
    record = json.loads(CliRunner().invoke(app, [*select, "--json"]).stdout)
    assert record["subtitles"] == [["One bar."], ["Two bars."], ["Two bars."]]


def test_subtitles_that_end_before_the_keyframes_are_counted(clip, tmp_path):
    (tmp_path / "late.vtt").write_text("WEBVTT\n\n01:00.000 --> 01:02.000\nlate\n")
    command = ["select", str(clip), *EVEN, "--subtitles", str(tmp_path / "late.vtt")]
    assert (
        "no subtitle at a keyframe: the file has 1 line, the last ends at 0:01:02"
        in CliRunner().invoke(app, command).stdout
    )


def test_a_line_without_an_end_lasts_until_the_end_of_the_video(clip, tmp_path):
    (tmp_path / "open.json").write_text('[{"timestamp": [1, null], "text": "open"}]')
    command = ["select", str(clip), *EVEN, "--subtitles", str(tmp_path / "open.json"), "--json"]
    assert json.loads(CliRunner().invoke(app, command).stdout)["subtitles"] == [[], ["open"], ["open"]]


def test_subtitles_that_cannot_be_used_are_named_before_a_frame_is_scored(clip, server, tmp_path):
    files = {"empty.srt": b"", "letter.srt": b"Dear reader,", "french.srt": SRT.replace("bar", "été").encode("cp1252")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    faults = [("empty.srt", "the file has no line"), ("letter.srt", "neither SubRip"), ("gone.srt", "No such file")]
    for name, reason in [*faults, ("french.srt", "name the file's encoding")]:
        with pytest.raises(InvalidInput, match=f"{name}.*{reason}"):
            ask(clip, QUESTION, "--llm", "chat:model=m", "--subtitles", tmp_path / name)
    french = ("--subtitles", tmp_path / "french.srt", "--subtitles-encoding", "cp1252")
    ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN, *french)
    assert "One été." in server.images[-1][0]
    with pytest.raises(InvalidInput, match="of one video, not of 2"):
        CliRunner().invoke(app, ["select", str(clip), str(clip), *map(str, french)], catch_exceptions=False)
    command = ["select", str(clip), *map(str, french), "--out", str(tmp_path / "french.srt")]
    with pytest.raises(InvalidInput, match="this is the file of subtitles, which would be lost"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_an_answer_without_words_is_an_error(clip, server):
    server.reply_to = lambda body: ("  ", {})
    with pytest.raises(AnswerError, match="allow more than 512 tokens"):
        ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>a page</html>",
        b"no JSON",
        b"[]",
        b"3",
        b'{"choices": "Two"}',
        b'{"choices": []}',
        b'{"choices": [{"text": "Two"}]}',
        b'{"choices": [{"message": null}], "usage": null}',
        b'{"choices": [{"finish_reason": "stop", "message": {"content": [{"type": "image", "text": "Two"}]}}]}',
    ],
)
def test_a_service_that_answers_otherwise_is_named_with_its_address_and_a_fix(clip, server, content, recwarn):
    server.content = content
    with pytest.raises(AnswerError) as raised:
        ask(clip, QUESTION, "--llm", "chat:model=m;max_retries=2;retry_backoff_s=0.01", *EVEN)
    message = str(raised.value)
    assert message.startswith(f"llm chat:model=m at {server.url}: ")
    assert message.endswith("(after 2 requests); check base_url, which usually ends in /v1")
    assert "_UnreadableReply" not in message
    assert not recwarn.list


@pytest.mark.parametrize(
    ("error", "n_requests"),
    [
        ('{"message": "Provider is overloaded, try again", "code": 502}', 2),
        ('{"message": "Rate limit exceeded", "code": "429"}', 2),
        ('{"message": "Input was flagged for violence", "code": 403, "metadata": {"reasons": ["violence"]}}', 1),
        ('{"message": "Your input was flagged by moderation"}', 1),
        ('{"message": "This request needs more credits", "code": 402}', 1),
        ('{"message": "The model is gone", "type": "invalid_request_error"}', 1),
        ('"the upstream hung up"', 2),
    ],
)
@pytest.mark.parametrize("in_choice", [False, True])
def test_an_error_in_a_reply_is_shown_whole_and_decides_about_asking_again(clip, server, error, n_requests, in_choice):
    choice = f'{{"choices": [{{"finish_reason": "error", "message": {{"content": "T"}}, "error": {error}}}]}}'
    server.content = (choice if in_choice else f'{{"error": {error}, "user_id": "u"}}').encode()
    with pytest.raises(AnswerError) as raised:
        ask(clip, QUESTION, "--llm", "chat:model=m;max_retries=2;retry_backoff_s=0.01", *EVEN)
    refusal = json.loads(error)
    refusal = {"message": refusal} if isinstance(refusal, str) else refusal
    code = refusal.get("code") or refusal.get("type")
    tried = " (after 2 requests)" if n_requests == 2 else ""
    text = f"the service answers with an error: {refusal['message']}{f' (code {code})' if code else ''}{tried}"
    assert str(raised.value) == f"llm chat:model=m at {server.url}: {text}"
    assert server.n_requests == n_requests


def test_a_system_prompt_is_the_first_message_and_part_of_the_models_identity(clip, server):
    bodies = []
    server.reply_to = lambda body: bodies.append(body["messages"]) or ("Two", {})
    output = ask(clip, QUESTION, "--llm", "chat:model=m;system_prompt=Answer in one word.", *EVEN)
    assert "system prompt 'Answer in one word.'" in " ".join(output.split())
    ((system, user),) = bodies
    assert system == {"role": "system", "content": "Answer in one word."}
    assert user["role"] == "user"


@pytest.mark.parametrize("command", ["select", "ask"])
def test_a_path_from_a_variable_that_is_not_set_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, "", QUESTION])
    assert result.exit_code == 2
    assert "the path is empty; is a variable not set?" in result.stderr


def test_a_file_address_is_the_file(clip, server, tmp_path):
    moved = tmp_path / "two words.mp4"
    moved.write_bytes(clip.read_bytes())
    result = CliRunner().invoke(app, ["select", moved.as_uri(), "-k", "2", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout)["video"].endswith("two words.mp4")
    assert len(select_keyframes(moved.as_uri(), k=2).keyframes) == 2


def test_a_text_that_comes_in_parts_is_one_text(clip, server):
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts = [thought, {"type": "text", "text": "Two "}, {"type": "text", "text": "talks"}]
    server.content = json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": parts}}]}).encode()
    output = ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN)
    assert output.startswith("Two talks\n")


def test_a_limit_of_a_setting_is_no_refusal_of_it(clip, server, capsys):
    text = "max_tokens is too large: 99999. This model supports at most 16384 completion tokens"
    server.content, server.status = json.dumps({"error": {"message": text, "param": "max_tokens"}}).encode(), 400
    with pytest.raises(AnswerError, match="supports at most 16384"):
        ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN)
    assert server.n_requests == 1
    assert "refuses max_tokens" not in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "n_requests"), [("", 1), (";max_pause_s=4000;max_retries=1", 1)])
def test_a_pause_longer_than_the_limit_names_both(clip, server, limit, n_requests):
    server.content, server.status, server.headers = b'{"error": {"message": "slow"}}', 429, {"Retry-After": "3600"}
    with pytest.raises(AnswerError) as raised:
        ask(clip, QUESTION, "--llm", f"chat:model=m{limit}", *EVEN)
    advice = "the service asks for a pause of 3,600 s, at most 120 are waited: run again then, or raise max_pause_s"
    assert (advice in str(raised.value)) == (not limit)
    assert server.n_requests == n_requests


@pytest.mark.parametrize("usage", ['{"prompt_tokens": null, "completion_tokens": 3}', '{"total_tokens": 3}', "null"])
def test_tokens_that_a_service_does_not_state_are_not_counted_as_none(clip, server, usage):
    choice = '{"finish_reason": "stop", "message": {"role": "assistant", "content": "Two"}}'
    server.content = f'{{"choices": [{choice}], "usage": {usage}}}'.encode()
    output = ask(clip, QUESTION, "--llm", "chat:model=m;price_input=10;price_output=10", *EVEN)
    assert "tokens not known, dollars not known" in output
    assert "without prices" not in output


def test_a_limit_in_dollars_ends_where_a_service_does_not_state_its_tokens(clip, server):
    choice = '{"finish_reason": "stop", "message": {"role": "assistant", "content": "Two"}}'
    server.content = f'{{"choices": [{choice}], "usage": {{"prompt_tokens": 10}}}}'.encode()
    llm = make_llm("chat:model=m;max_cost=9;price_input=10;price_output=10")
    llm.ask("once", [], max_tokens=4)
    with pytest.raises(RunError, match="the service does not state how many tokens it charges"):
        llm.ask("again", [], max_tokens=4)


@pytest.mark.parametrize("status", [400, 200])
def test_a_model_that_refuses_settings_is_asked_without_them_and_says_so_once(clip, server, status):
    server.refuses, server.refusal_status = ("max_tokens", "temperature"), status
    result = CliRunner().invoke(app, ["ask", str(clip), QUESTION, "--llm", "chat:model=m", *EVEN])
    assert server.bodies == [{"seed": 0, "max_completion_tokens": 512}]
    assert "seed 0), without temperature, which it refuses, 100 + 1 tokens" in result.stdout
    assert [line for line in result.stderr.splitlines() if line.startswith("note")] == [
        "note: m refuses max_tokens=512; max_completion_tokens replaces it",
        "note: m refuses temperature=0.0; it is left out from here on",
    ]
    record = json.loads(ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN, "--json"))
    assert record["usage"] == {"requests": 3, "input": 100, "output": 1, "without_temperature": 1}


def test_a_value_out_of_range_is_the_users_to_mend(clip, server, monkeypatch):
    text = "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead."
    monkeypatch.setattr(
        "tests.support.keyframes.chat_server.refusal", lambda name, value: {"message": text, "param": name}
    )
    server.refuses = ("temperature",)
    with pytest.raises(AnswerError, match="decimal above maximum value"):
        ask(clip, QUESTION, "--llm", "chat:model=m;temperature=3", *EVEN)


def test_a_short_key_is_a_word_that_error_messages_keep(clip, server, monkeypatch):
    server.refuses = ("seed",)
    monkeypatch.setattr(
        "tests.support.keyframes.chat_server.refusal", lambda name, value: {"message": "my-secret-key: no tokens"}
    )
    for key, message in (("ken", "my-secret-key: no tokens"), ("my-secret-key", r"\[key\]: no tokens")):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(AnswerError, match=message):
            ask(clip, QUESTION, "--llm", "chat:model=m", *EVEN)


def test_yes_in_a_light_install_names_what_a_download_needs(clip, server, monkeypatch):
    monkeypatch.setattr("focus_eval.keyframes.encoders.default._is_installed", lambda encoder: False)
    arguments = ["ask", str(clip), QUESTION, "--llm", "chat:model=m", "-k", "2", "--yes", "--query", "a bar"]
    assert (
        "--yes downloaded nothing: the encoders to download need pip install"
        in CliRunner().invoke(app, arguments).stderr
    )
    assert "downloaded" not in CliRunner().invoke(app, arguments[:-3] + arguments[-2:]).stderr
