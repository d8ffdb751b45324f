"""Is published relevance read as it was written, whatever is wrong with the files?"""

from __future__ import annotations

import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import VideoRate, exact_rate, read_annotations, read_rates
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.external.commands.importing import published_check
from focus_eval.external.imports.relevance import read_relevance
from focus_eval.keyframes.encoders.recorded import RecordedScorer
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.recorded import recorded_traces
from focus_eval.lab.simulation import SimulationConfig, trace_sources
from tests.external.imports.made_relevance import candidates, write_files
from tests.keyframes.samplers.recorded import recorded_cases, recorded_relevance

SHARED = Path(__file__).parents[4] / "shared" / "data"
RATES_OF = ("30000/1001", "24000/1001", "25", "30")


def questions(n=12, seconds=lambda at: 60.0 + 17.3 * at):
    """Return `n` questions on one video each, and the length and rate of each question's video."""
    rows = [
        Question(
            benchmark="longvideobench", id=f"v{at}_0", query=f"what happens in {at}?", options=("a", "b"),
            video=f"v{at}.mp4", answer="A", duration_seconds=seconds(at), evidence_seconds=(20.0 + at,),
        )
        for at in range(n)
    ]  # fmt: skip
    return rows, {q.id: VideoRate(q.duration_seconds, exact_rate(RATES_OF[at % 4])) for at, q in enumerate(rows)}


def read(folder, change=lambda scores, frames: None, *, n=12, encoder="blip", **options):
    benchmark_questions, rates = questions(n)
    scores, frames = write_files(folder, benchmark_questions, rates, encoder=encoder, change=change)
    return read_relevance(scores, frames, benchmark_questions, rates, encoder=encoder, **options)


def test_rows_hold_the_scores_of_their_candidates_to_the_bit(tmp_path):
    relevance = read(tmp_path)
    written = json.loads((tmp_path / "scores.json").read_text())
    benchmark_questions, rates = questions()
    assert relevance.kind == "probability"
    assert relevance.left_out == []
    for row, scores, question in zip(relevance.rows, written, benchmark_questions, strict=True):
        assert row.question_id == question.id
        assert row.pulled_relevance == scores
        assert row.pulled_frames == candidates(question, rates)
        assert row.pulled_frames[-1] < row.n_frames
        assert int(row.n_frames / int(row.fps)) == len(scores)  # so that `aks` and `topk` pull these frames


def test_a_cosine_is_no_probability(tmp_path):
    relevance = read(tmp_path, encoder="clip")
    cosines = json.loads((tmp_path / "scores.json").read_text())
    assert relevance.kind == "cosine"
    for row, raw in zip(relevance.rows, cosines, strict=True):
        assert row.facts == {"is_cosine": True}
        assert 2 * np.array(row.pulled_relevance) - 1 == pytest.approx(raw, abs=1e-15)
    stated_kind = read(tmp_path / "said", encoder="clip", kind="probability")
    assert stated_kind.rows[0].pulled_relevance == cosines[0]


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(0.0, 1.0, "probability"), (0.1, 0.9, "probability"), (0.05, 0.45, "cosine"), (-0.1, 0.3, "cosine")],
)
def test_the_range_of_all_scores_tells_cosines_from_probabilities(tmp_path, low, high, kind):
    def spread(scores, frames):
        for at, values in enumerate(scores):
            scores[at] = np.linspace(low, high, len(values)).tolist()

    assert read(tmp_path, spread).kind == kind


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [(0.0, 0.4, "probabilities or cosines\\? say -o kind="), (0.0, 100.0, "0 to 100, which no probability does"),
     (-20.0, 30.0, "-20 to 30, which no cosine does")],
)  # fmt: skip
def test_scores_that_may_be_either_or_neither_are_refused(tmp_path, low, high, message):
    def spread(scores, frames):
        for at, values in enumerate(scores):
            scores[at] = np.linspace(low, high, len(values)).tolist()

    with pytest.raises(InvalidInput, match=message):
        read(tmp_path, spread)


def broken(scores, frames, flaw):
    """Bring the named flaw into the lists of scores and frames."""
    if flaw == "short":
        scores[4] = scores[4][:-5]
    if flaw == "nan":
        scores[4][3] = math.nan
    if flaw == "null":
        scores[4] = None
    if flaw == "empty":
        scores[4] = []
    if flaw == "null score":
        scores[4][3] = None
    if flaw == "text":
        scores[4] = "no"
    if flaw == "other video":
        frames[4] = [2 * frame for frame in frames[4]]
    if flaw == "frames too short":
        frames[4], scores[4] = frames[4][:-9], scores[4][:-9]


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("short", r"scores\.json: v4_0 \(place 4\): \d+ scores for \d+ frames: left out"),
        ("nan", r"scores\.json: v4_0 \(place 4\): score 3 is nan: left out"),
        ("null", r"scores\.json: v4_0 \(place 4\): no scores: left out"),
        ("empty", r"scores\.json: v4_0 \(place 4\): no scores: left out"),
        ("null score", r"its scores are not a list of numbers: left out"),
        ("text", r"its scores are not a list of numbers: left out"),
        ("other video", r"frames\.json: v4_0 \(place 4\): frame 58 at 1, 29 by int\(29\.97\) a second: left out"),
        ("frames too short", r"frames\.json: v4_0 \(place 4\): \d+ frames, 129\.2 s of video have \d+: left out"),
    ],
)
def test_a_question_whose_lists_do_not_fit_is_left_out_and_named(tmp_path, flaw, message):
    relevance = read(tmp_path, lambda scores, frames: broken(scores, frames, flaw))
    assert [row.question_id for row in relevance.rows] == [q.id for q in questions()[0] if q.id != "v4_0"]
    [line] = relevance.left_out
    assert re.search(message, line)


def without(at):
    def change(scores, frames):
        del scores[at], frames[at]

    return change


def shifted(scores, frames):
    scores.insert(2, scores.pop())
    frames.insert(2, frames.pop())


def test_a_missing_list_is_refused_with_the_first_that_does_not_fit(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"11 lists of scores and 11 of frames for 12 questions.*is lost.*is of v4_0 \(place 4\)"
    ):
        read(tmp_path, without(4))


def test_the_same_number_of_lists_in_another_order_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"10 of 12 lists fit other videos.*v2_0 \(place 2\)"):
        read(tmp_path, shifted)


@pytest.mark.parametrize(("n_misfits", "is_read"), [(3, True), (4, False)])
def test_a_few_lists_that_fit_no_video_are_left_out_and_more_are_refused(tmp_path, n_misfits, is_read):
    def change(scores, frames):
        for at in range(n_misfits):
            frames[at][1] += 1

    if not is_read:
        with pytest.raises(InvalidInput, match="4 of 12 lists fit other videos"):
            read(tmp_path, change)
        return
    relevance = read(tmp_path, change)
    assert (len(relevance.rows), len(relevance.left_out)) == (9, 3)


def test_a_list_that_one_of_the_files_lacks_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="11 lists of scores and 12 of frames for 12 questions"):
        read(tmp_path, lambda scores, frames: scores.pop())
    with pytest.raises(InvalidInput, match="12 lists of scores and 11 of frames for 12 questions"):
        read(tmp_path, lambda scores, frames: frames.pop())


def test_a_rate_cut_to_an_integer_is_a_stride_and_not_a_rate(tmp_path):
    benchmark_questions, rates = questions(4)
    relevance = read(tmp_path, n=4)
    ntsc = relevance.rows[0]
    assert ntsc.pulled_frames[1] == 29
    assert ntsc.fps == pytest.approx(29.97, abs=1e-3)
    wrong = {key: replace(rate, fps=rate.fps + 1) for key, rate in rates.items()}
    with pytest.raises(InvalidInput, match="4 of 4 lists fit other videos"):
        read_relevance(tmp_path / "scores.json", tmp_path / "frames.json", benchmark_questions, wrong, encoder="blip")


def test_one_candidate_more_or_fewer_than_the_rounded_length_gives_is_taken(tmp_path):
    def one_more(scores, frames):
        frames[0].append(frames[0][-1] + frames[0][1])
        scores[0].append(0.5)
        del frames[1][-1], scores[1][-1]

    relevance = read(tmp_path, one_more)
    assert relevance.left_out == []
    for row in relevance.rows:
        assert int(row.n_frames / int(row.fps)) == len(row.pulled_frames)


@pytest.mark.parametrize(("text", "message"), [("", "not JSON"), ("{}", "not a JSON list"), ("[[1], [2", "not JSON")])
def test_a_file_that_is_no_whole_list_is_named(tmp_path, text, message):
    benchmark_questions, rates = questions(4)
    scores, frames = write_files(tmp_path, benchmark_questions, rates)
    scores.write_text(text)
    with pytest.raises(InvalidInput, match=f"scores.json.*{message}"):
        read_relevance(scores, frames, benchmark_questions, rates, encoder="blip")


@pytest.mark.parametrize("name", ["scores.json", "frames.json"])
def test_a_gzipped_file_is_read_alike(tmp_path, name):
    plain = read(tmp_path, n=4)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content))
    benchmark_questions, rates = questions(4)
    compressed = read_relevance(
        tmp_path / "scores.json", tmp_path / "frames.json", benchmark_questions, rates, encoder="blip"
    )
    assert [row.pulled_relevance for row in compressed.rows] == [row.pulled_relevance for row in plain.rows]


def written(folder, benchmark_questions, rates):
    """Write an annotation and a file of rates for made questions; return the options that name them."""
    documents = [
        {"id": q.id, "video_path": q.video, "video_id": q.video[:-4], "question": q.query, "correct_choice": 0,
         "duration": q.duration_seconds, "candidates": list(q.options),
         "position": [round(s * 24) for s in q.evidence_seconds]}
        for q in benchmark_questions
    ]  # fmt: skip
    (folder / "val.json").write_text(json.dumps(documents))
    lines = [f"{q.id},{q.duration_seconds},{rates[q.id].fps}" for q in benchmark_questions]
    (folder / "fps.csv").write_text("\n".join(["id,duration_s,fps", *lines]) + "\n")
    return ["--annotations", str(folder / "val.json"), "--rates", str(folder / "fps.csv")]


def test_the_command_writes_what_simulations_and_the_recorded_encoder_read(tmp_path):
    benchmark_questions, rates = questions()
    scores, frames = write_files(tmp_path / "blip", benchmark_questions, rates, change=lambda s, f: broken(s, f, "nan"))
    command = ["import", "relevance", str(scores), str(frames), *written(tmp_path, benchmark_questions, rates)]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "score 3 is nan: left out" in result.output
    assert "of 11 of 12 questions, 11 with evidence; 1 left out" in result.output
    traces = recorded_traces(tmp_path / "out")
    assert [trace.question_id for trace in traces] == sorted(q.id for q in benchmark_questions if q.id != "v4_0")
    assert {trace.bucket for trace in traces} == {"short", "medium"}
    [source] = trace_sources(SimulationConfig(recorded=str(tmp_path / "out"), samplers=["topk"], k=[8]))
    assert source.name == "longvideobench"  # so that `predict` takes rows of it
    [file] = (tmp_path / "out").glob("selections/*/rows-0.jsonl")
    scorer = RecordedScorer(path=file)
    row = next(row for row in load_run(tmp_path / "out").selections if row.question_id == "v0_0")
    pulled = np.array(row.pulled_frames[:5])
    assert (
        scorer.relevance_of(Path("v0.mp4"), pulled, benchmark_questions[0].query).tolist() == row.pulled_relevance[:5]
    )
    scores, frames = write_files(tmp_path / "clip", benchmark_questions, rates, encoder="clip")
    CliRunner().invoke(
        app, ["import", "relevance", str(scores), str(frames), *command[4:], "--out", str(tmp_path / "c")]
    )
    assert all(trace.is_cosine for trace in recorded_traces(tmp_path / "c"))
    assert not any(trace.is_cosine for trace in traces)
    second = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert "holds a run already" in str(second.exception)


# Where a choice is made, as many frames come as were asked, and the scores are other ones backwards.
CASES = [
    case for case in recorded_cases("aks")
    if case["seconds"] > case["k"] == len(case["selected"]) and case["trace"]["bumps"] and case["selected"][-1] > 2000
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_our_aks_gives_the_frames_that_the_authors_code_chose_from_the_same_scores(tmp_path, case):
    """The self-check of `-o published=FILE`, on scores of which AKS's own choice was recorded."""
    step = case["step"]
    [benchmark_questions], _ = questions(1, seconds=lambda at: case["trace"]["frames"] / step)
    rates = {benchmark_questions.id: VideoRate(benchmark_questions.duration_seconds, exact_rate(f"{step}.001"))}
    at = [j * step for j in range(case["seconds"])]
    scores, frames, published = (tmp_path / name for name in ("scores.json", "frames.json", "published.json"))
    scores.write_text(json.dumps([recorded_relevance(case["trace"])[at].tolist()]))
    frames.write_text(json.dumps([at]))
    published.write_text(json.dumps([case["selected"]]))
    relevance = read_relevance(scores, frames, [benchmark_questions], rates, encoder="blip", kind="probability")
    aks = make_sampler("aks", **{name: case[name] for name in ("t1", "t2", "max_depth")})
    assert (
        "the same frames for 1 of 1 questions"
        in published_check(relevance, [benchmark_questions], published, aks=aks)[0]
    )
    scores.write_text(json.dumps([recorded_relevance(case["trace"])[at][::-1].tolist()]))
    relevance = read_relevance(scores, frames, [benchmark_questions], rates, encoder="blip", kind="probability")
    assert "the same frames for 0 of 1" in published_check(relevance, [benchmark_questions], published, aks=aks)[0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the published annotation and selections of ../shared/data")
def test_files_of_the_exact_form_for_the_real_annotation_are_read_whole(tmp_path):
    benchmark_questions = read_annotations("longvideobench", SHARED / "lvb_val.json")
    rates = read_rates(SHARED / "lvb_val_fps.csv")
    part = benchmark_questions[:60]
    relevance = read_relevance(*write_files(tmp_path, part, rates), part, rates, encoder="blip")
    assert len(relevance.rows) == 60
    published = json.loads((SHARED / "aks_longvideobench_blip_64.json").read_text())
    for row, frames in zip(relevance.rows, published, strict=False):  # real ones lie on the made grid
        assert set(frames[:-1]) <= set(row.pulled_frames)
