"""The audit: each finding planted alone is found and nothing else is; the public files give the known findings."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.bench.report.comparisons import run_comparison
from focus_eval.bench.report.run import Run, joined_run, load_run
from focus_eval.bench.rows.packed import pack_run
from focus_eval.bench.rows.seen_videos import SeenState, SeenVideos, write_seen_videos
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.external.audit import FAULT, NOTE, CheckedSeries, _chance_of_agreement, audit, series_of
from focus_eval.external.imports.log_import import LogOptions, LogOrigin
from focus_eval.external.reading import ReadingOptions, read_runs, run_of_logs
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.bench.report.simulated import Simulation, simulate_run
from tests.external.imports.test_lmms_logs import line, write_log

IDS = [f"q{i}" for i in range(40)]


def questions_of(ids):
    return [
        Question(
            benchmark="longvideobench", id=key, query=f"what is {key}?", options=(), video=f"{key}.mp4", answer="A"
        )
        for key in ids
    ]


QUESTIONS = questions_of(IDS)
# So many that agreement on all of them is no chance.
MANY_QUESTIONS = questions_of(f"q{i}" for i in range(400))


def selection(question, frames, **changes):
    row = SelectionRow(
        benchmark=question.benchmark,
        question_id=question.id,
        video=question.video,
        query=question.query,
        selection_id="s",
        sampler="aks",
        options={},
        encoder="",
        encoder_revision="",
        k=8,
        seed=0,
        bucket="long",
        duration_seconds=40.0,
        n_frames=1000,
        fps=25.0,
        keyframes=list(frames),
        times_seconds=[frame / 25 for frame in frames],
        evidence_seconds=[7 / 24, 11 / 24],
        facts={"published": True, "prompt": f"text {question.id}"},
    )
    return replace(row, **changes)


def answer(question, letter, **changes):
    row = AnswerRow(
        benchmark=question.benchmark,
        question_id=question.id,
        video=question.video,
        selection_id="s",
        cell_id="c",
        cell="c",
        model="m",
        bucket="long",
        frames_asked=8,
        frames_chosen=8,
        frames_fed=8,
        answer=letter,
        parsed=letter,
        correct_answer="A",
        score=float(letter == "A"),
    )
    return replace(row, **changes)


def honest(name="a", *, model="m", shift=0, is_answered=True, questions=QUESTIONS):
    """Return a series without a flaw: 8 frames for each question, different ones for every question."""
    return CheckedSeries(
        name=name,
        model=model if is_answered else "",
        selections={
            question.id: selection(question, [100 * i + at + shift for i in range(8)])
            for at, question in enumerate(questions)
        },
        answers={question.id: answer(question, "ABCD"[(at + shift) % 4]) for at, question in enumerate(questions)}
        if is_answered
        else {},
        origin=LogOrigin(metric="acc", scores={"acc": 0.25} if is_answered else {}, n_questions=len(questions)),
        expected=questions,
    )


def with_selections(series, question_ids=None, **changes):
    """Return the series with other fields in its selection rows; a callable gets the question's number."""
    return replace(series, selections=changed(series.selections, question_ids, changes))


def with_answers(series, question_ids=None, **changes):
    return replace(series, answers=changed(series.answers, question_ids, changes))


def changed(rows, question_ids, changes):
    changed_rows = {}
    for at, (key, row) in enumerate(rows.items()):
        values = {name: value(at) if callable(value) else value for name, value in changes.items()}
        changed_rows[key] = replace(row, **values) if question_ids is None or key in question_ids else row
    return changed_rows


def with_origin(series, **changes):
    return replace(series, origin=replace(series.origin, **changes))


def test_honest_runs_give_no_finding():
    assert audit([honest("a"), honest("b", shift=1), honest("c", is_answered=False)]) == []


@pytest.mark.parametrize(
    ("flaw", "check", "count", "severity"),
    [
        (lambda run: with_origin(run, problems=("f:3: cut off",)), "not readable", 1, FAULT),
        (
            lambda run: replace(run, expected=[*QUESTIONS, replace(QUESTIONS[0], id="z", query="z?")]),
            "missing questions",
            1,
            FAULT,
        ),
        (lambda run: replace(run, expected=QUESTIONS[1:]), "not the benchmark's", 1, FAULT),
        (lambda run: with_origin(run, n_questions=41), "its results file counts", 40, FAULT),
        (lambda run: with_origin(run, scores={"acc": 0.3}), "does not follow from the rows", 40, FAULT),
        (lambda run: with_answers(run, ["q0"], parsed=None), "not parsed", 1, NOTE),
        (lambda run: with_answers(run, IDS[:3], parsed=None), "not parsed", 3, FAULT),
        (lambda run: with_selections(run, ["q0"], keyframes=[*range(7), 1025]), "past the end", 1, FAULT),
        (lambda run: with_answers(run, ["q0"], fed_frames=[100, 0, *range(200, 701, 100)]), "not in order", 1, FAULT),
        (lambda run: with_selections(run, ["q0"], keyframes=list(range(7))), "fewer distinct frames", 1, NOTE),
        (lambda run: with_selections(run, keyframes=list(range(8))), "same frames in every question", 40, FAULT),
        (lambda run: with_selections(run, k=0, keyframes=lambda at: [at] * 2), "over and over", 40, FAULT),
        (
            lambda run: with_selections(run, keyframes=lambda at: [7, 11, *range(20 + at, 26 + at)]),
            "taken as native",
            40,
            FAULT,
        ),
        (
            lambda run: with_answers(with_selections(run, facts={}), ["q0"], fed_frames=[1]),
            "other frames fed",
            1,
            FAULT,
        ),
    ],
)
def test_each_flaw_of_a_run_is_found_and_nothing_else_but_what_follows(flaw, check, count, severity):
    findings = [finding for finding in audit([flaw(honest())]) if check in finding.check]
    assert [(finding.count, finding.severity) for finding in findings] == [(count, severity)]
    other_checks = {finding.check for finding in audit([flaw(honest())])} - {findings[0].check}
    assert other_checks <= {"frames that repeat", "other frames fed than chosen"}


def test_a_frame_that_stands_twice_is_a_repeat_and_too_few():
    findings = audit([with_selections(honest(), ["q0"], keyframes=[1, 1, 2, 3, 4, 5, 6, 7])])
    assert {finding.check for finding in findings} == {"frames that repeat", "fewer distinct frames than K = 8"}
    assert "q0: 1 of 8 frames repeat another" in {finding.worst for finding in findings}
    assert {finding.severity for finding in findings} == {NOTE}


def test_faults_come_before_notes_and_the_worst_first():
    run = with_answers(honest(questions=MANY_QUESTIONS), ["q0"], parsed=None)
    run = with_selections(run, ["q1"], keyframes=[*range(7), 1025])
    a = with_origin(run, scores={"acc": 0.5})
    findings = audit([a, replace(honest("b", shift=1, questions=MANY_QUESTIONS), answers=a.answers)])
    assert "did the selection reach" in findings[0].check
    assert [item.severity for item in findings] == sorted((item.severity for item in findings), key=[FAULT, NOTE].index)


def test_a_selection_that_never_reached_the_model_is_found_with_and_without_frames():
    a, b = (inside_video(honest(name, shift=at, questions=MANY_QUESTIONS)) for at, name in enumerate(("aks", "other")))
    b = replace(b, answers=a.answers)
    (findings,) = audit([a, b])
    assert "did the selection reach the model?" in findings.check
    assert findings.worst == "aks and other: 400 of 400 (100.00 %), from other frames"
    unknown = {"keyframes": None, "times_seconds": None}
    (findings,) = audit([with_selections(a, **unknown), with_selections(b, **unknown)])
    assert (findings.severity, findings.worst.endswith("the frames are not in the logs")) == (FAULT, True)
    assert audit([a, replace(b, model="another model")]) == []


def inside_video(series):
    """Return the series with videos that are long enough for its frames."""
    return with_selections(series, n_frames=2000)


def test_a_copy_of_a_run_under_another_name_is_found_and_a_repeat_is_a_note():
    aks = honest("mlvu_32_AKS")
    (finding,) = audit([aks, replace(aks, name="mlvu_32_Ours")])
    assert (finding.severity, finding.count, finding.of) == (FAULT, 1, 1)
    assert finding.check == "pairs of runs with the same frames and answers (one run under two names)"
    assert finding.worst == ("mlvu_32_AKS and mlvu_32_Ours: frames equal in 40 of 40 questions, answers in 40")
    (repeat,) = audit([aks, replace(aks, name="mlvu_32_AKS_run2")])
    assert (repeat.severity, repeat.check.endswith("(the same run twice?)")) == (NOTE, True)
    log, other_log = (LogOrigin(file="samples.jsonl", stamp=stamp) for stamp in ("20260101_120000", "20260102_120000"))
    logged = replace(aks, origin=log)
    (one_log,) = audit([logged, replace(logged, name="theirs: a model")])
    assert (one_log.severity, one_log.check.endswith("(the same run twice?)")) == (NOTE, True)
    (two_logs,) = audit([logged, replace(logged, name="theirs: a model", origin=other_log)])
    assert two_logs.severity == FAULT
    other_answers = with_answers(replace(aks, name="mlvu_32_Ours"), IDS[:3], answer="none of these")
    assert not any("one run under two names" in item.check for item in audit([aks, other_answers]))


def test_two_selections_of_all_candidates_of_short_videos_are_no_copy():
    # Each has 3 candidates in 30 of 40 videos, where K is 8: every sampler chooses these.
    series = with_selections(honest("aks"), IDS[:30], keyframes=[0, 25, 50], n_frames=75)
    assert not any("one run" in item.check for item in audit([series, replace(series, name="topk")]))


def test_runs_of_ours_with_the_same_frames_and_answers_are_no_copy():
    honest_run = with_selections(honest("uniform"), facts={})
    assert audit([honest_run, replace(honest_run, name="even")]) == []


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ("uniform", "uniform again", NOTE),
        ("llava_nframes_32", "llava_nframes_32_rerun", NOTE),
        ("llava_nframes_32", "llava_nframes_32_v2", NOTE),
        ("uniform", "my selection", FAULT),
        ("aks_nframes_32", "nframes_32", FAULT),
    ],
)
def test_an_honest_repeat_is_a_note_and_a_selection_with_the_answers_of_another_a_fault(first, second, severity):
    a = with_selections(honest(first, questions=MANY_QUESTIONS), keyframes=None, times_seconds=None)
    (finding,) = audit([a, replace(a, name=second)])
    assert finding.severity == severity
    is_repeat = finding.check == "pairs of runs with the same answers (the same run twice?)"
    assert is_repeat == (severity == NOTE)


def test_nested_selections_may_have_the_same_answers():
    eight = inside_video(honest("topk 8", questions=MANY_QUESTIONS))
    rows = {key: replace(row, k=4, keyframes=row.keyframes[::2]) for key, row in eight.selections.items()}
    four = replace(eight, name="topk 4", selections=rows)
    assert audit([four, eight]) == []
    # With one other frame in each question, the answers should differ somewhere.
    rows = {key: replace(row, keyframes=[*row.keyframes[:3], 1999]) for key, row in rows.items()}
    (finding,) = audit([replace(four, selections=rows), eight])
    assert (finding.severity, "did the selection reach" in finding.check) == (FAULT, True)


def test_few_questions_with_the_same_answers_are_a_note():
    a = honest("aks")
    (finding,) = audit([a, replace(honest("other", shift=1), answers=a.answers)])
    assert (finding.severity, finding.worst) == (NOTE, "aks and other: 40 of 40 (100.00 %), from other frames")
    assert "too few questions to say whether the selection reached the model" in finding.check


def test_k_that_a_log_does_not_state_is_the_most_frames_of_a_question():
    table = with_origin(honest("run"), is_k_stated=False)
    table = with_selections(table, IDS[:2], keyframes=[5])
    table = with_selections(table, [IDS[2]], keyframes=[5, 6])
    (finding,) = audit([table])
    assert (finding.severity, finding.count, finding.of) == (NOTE, 3, 40)
    assert finding.check == "fewer distinct frames than K = 8, the most of a question"
    assert finding.worst == "1.3 on average, fewest 1 (2 times), first in q0"
    of_one_frame = with_selections(table, IDS[:30], keyframes=[5])
    assert [item.check for item in audit([of_one_frame]) if "fewer" in item.check] == []
    oracle = with_selections(replace(honest("oracle"), origin=None), role="ceiling", facts={})
    assert audit([with_selections(oracle, IDS[:2], keyframes=[5])]) == []


def test_a_floor_shows_the_same_in_every_question_and_is_no_fault():
    frames = {"keyframes": [], "times_seconds": [], "facts": {}}
    shows_nothing = with_answers(with_selections(replace(honest("blind"), origin=None), **frames), fed_frames=[])
    assert "the same frames in every question" in {finding.check for finding in audit([shows_nothing])}
    assert audit([with_selections(shows_nothing, role="floor")]) == []


def test_a_note_that_several_series_have_alike_is_one_line_and_faults_stay_apart():
    def subjects(series, check):
        return [finding.subject for finding in audit(series) if check in finding.check]

    failed = [replace(honest(name), errors={"x": "v.mp4: damaged"}) for name in ("a", "b", "c")]
    assert subjects(failed, "failed") == ["a and 2 more series"]
    other_error = replace(failed[1], errors={"x": "v.mp4: too short"})
    assert subjects([failed[0], other_error], "failed") == ["a", "b"]
    past_the_end = [with_selections(item, ["q0"], keyframes=[*range(7), 1025]) for item in failed]
    assert subjects(past_the_end, "past the end") == ["a", "b", "c"]


def half_arrived(name="aks"):
    """Return two series: uniform, and one whose frames reached the model in the last half of 200 questions only."""
    questions = [replace(QUESTIONS[0], id=f"p{at}", query=f"what is {at}?") for at in range(200)]
    letters = {question.id: "ABCD"[at % 4] for at, question in enumerate(questions)}
    uniform = CheckedSeries(
        name="uniform",
        model="m",
        selections={item.id: selection(item, [], keyframes=None, times_seconds=None) for item in questions},
        answers={item.id: answer(item, letters[item.id]) for item in questions},
    )
    rows, answers = {}, {}
    for at, item in enumerate(questions):
        is_reached = at >= 100
        frames = {} if is_reached else {"keyframes": None, "times_seconds": None}
        rows[item.id] = selection(item, range(at, at + 8), **frames)
        letter = "A" if is_reached and at % 2 else letters[item.id]
        answers[item.id] = answer(item, letter)
    return uniform, CheckedSeries(name=name, model="m", selections=rows, answers=answers)


def test_a_selection_that_reached_the_model_in_a_part_is_found_with_both_accuracies():
    uniform, aks = half_arrived()
    (findings,) = audit([uniform, aks])
    assert findings.check == "questions that the selection did not reach: frames not recorded in aks"
    assert (findings.severity, findings.count, findings.of) == (FAULT, 100, 200)
    assert findings.worst == (
        "the same answers in 100 of 100, elsewhere in 50 of 100; accuracy where it arrived 75.0 against 25.0 % "
        "(+50.0 points), there 25.0 against 25.0 % (+0.0 points), in all 50.0 against 25.0 % (+25.0 points)"
    )


def test_any_part_that_the_log_names_is_checked_and_a_small_agreeing_part_is_no_finding():
    uniform, aks = half_arrived()
    with_frames = with_selections(aks, keyframes=lambda at: list(range(at, at + 8)))
    facts = [{"published": True, "groups": {"source": "films" if at < 100 else "news"}} for at in range(200)]
    (findings,) = audit([uniform, with_selections(with_frames, facts=lambda at: facts[at])])
    assert findings.check.endswith("source 'films'")
    # Runs that agree on 95 % agree on all of some 40 questions by chance.
    letters = [("B" if at % 20 == 0 and at >= 40 else row.answer) for at, row in enumerate(uniform.answers.values())]
    near_series = with_answers(with_frames, answer=lambda at: letters[at])
    facts = [{"published": True, "groups": {"source": "films" if at < 40 else "news"}} for at in range(200)]
    assert audit([uniform, with_selections(near_series, facts=lambda at: facts[at])]) == []


def test_a_field_that_was_not_fed_is_found():
    a = honest("a")
    (findings,) = audit([a, replace(honest("b", shift=1), selections=a.selections)])
    assert "is this the field that was fed?" in findings.check
    assert "up to 100.0 %" in findings.worst


def test_runs_of_ours_may_show_the_same_frames_under_two_seeds():
    a = with_selections(honest("a"), facts={})
    assert audit([a, replace(a, name="b", answers=honest("b", shift=1).answers)]) == []


def test_an_imported_length_gets_slack_and_a_counted_one_none():
    series = honest()
    first = next(iter(series.selections))
    is_past_by_kind = {}
    for name, facts in (("imported", {"published": True}), ("counted", {})):
        # 1000 frames at 25 a second: a frame 4 past the end is within the slack of a length from seconds.
        moved = with_selections(series, facts=facts)
        moved = with_selections(moved, [first], keyframes=[*range(7), 1003])
        answers = {key: replace(row, fed_frames=[]) for key, row in moved.answers.items()}
        checks = {finding.check for finding in audit([replace(moved, answers=answers)])}
        is_past_by_kind[name] = "frames past the end of the video" in checks
    assert is_past_by_kind == {"imported": False, "counted": True}


def test_a_video_with_fewer_frames_than_k_is_no_finding():
    assert audit([with_selections(honest(), ["q0"], keyframes=[0, 1, 2], n_frames=3)]) == []


def test_fed_frames_in_another_order_or_after_a_fallback_are_no_other_frames():
    series = honest()

    def checks(shown, **changes):
        answers = {
            key: replace(row, fed_frames=shown(series.selections[key].keyframes), **changes)
            for key, row in series.answers.items()
        }
        return {finding.check for finding in audit([replace(series, answers=answers)])} - {"frames not in order"}

    assert checks(lambda frames: frames[::-1]) == set()
    assert checks(lambda frames: [frame + 1 for frame in frames], fallback="aks") == set()
    assert checks(lambda frames: [frame + 1 for frame in frames]) == {"other frames fed than chosen"}


def test_what_is_unknown_is_not_checked():
    run = with_selections(honest(), n_frames=None, fps=None, duration_seconds=None, times_seconds=None)
    assert audit([run]) == []
    assert audit([with_selections(run, keyframes=None)]) == []


def test_an_accuracy_that_is_a_mean_over_types_follows_from_the_rows():
    run = with_answers(honest(), category=lambda at: "a" if at < 30 else "b")
    of_types = [[row.score for row in run.answers.values() if row.category == name] for name in ("a", "b")]
    accuracy = sum(sum(scores) / len(scores) for scores in of_types) / 2
    assert accuracy != 0.25
    assert audit([with_origin(run, scores={"acc": accuracy})]) == []
    (findings,) = audit([with_origin(run, scores={"acc": 0.5})])
    assert findings.worst == f"stated 0.50000, the rows give 0.25000 ({accuracy:.5f} over 2 types)"


def test_questions_that_the_logs_own_limit_leaves_out_are_a_note():
    more = [replace(QUESTIONS[0], id=f"z{number}", query=f"z{number}?") for number in range(3)]
    run = replace(honest("a"), expected=[*QUESTIONS, *more])
    (finding,) = audit([with_origin(run, n_left_out=3)])
    assert (finding.check, finding.severity) == ("questions that the log's own limit leaves out", NOTE)
    assert (finding.count, finding.of, finding.worst) == (3, 43, "the first is z0")
    found_checks = {finding.check: finding.count for finding in audit([with_origin(run, n_left_out=2)])}
    assert found_checks == {"missing questions": 1, "questions that the log's own limit leaves out": 2}


def test_other_prompts_and_other_questions_of_a_pair_are_found():
    a, b = honest("a"), honest("b", shift=1)
    (findings,) = audit([a, with_selections(b, ["q3"], facts={"published": True, "prompt": "text another"})])
    assert findings.worst == "a and b: 1 of 40 questions, the first is q3"
    answers_without_one = {key: row for key, row in b.answers.items() if key != "q5"}
    rows = {key: row for key, row in b.selections.items() if key != "q5"}
    b = replace(b, answers=answers_without_one, selections=rows, origin=None)
    findings = {finding.check: finding.severity for finding in audit([a, b])}
    assert findings == {"missing questions": FAULT, "runs that lack questions of the others": NOTE}


def documents(n_lines):
    """Lines of a log whose documents repeat their `question_id`, as VideoEval-Pro's do."""
    return [
        line(
            at,
            doc={
                "video_id": f"{at}.mp4",
                "question": f"what at {at}?",
                "options": ["x", "y"],
                "question_id": "same",
            },
            acc={"answer": "B", "parsed_pred": "BA"[at % 2]},
            filtered_resps=["BA"[at % 2]],
            input=f"what at {at}?",
        )
        for at in range(n_lines)
    ]


def test_a_log_whose_question_id_repeats_is_not_accused(tmp_path):
    write_log(tmp_path, documents(40), results={"my_task": {"acc,none": 0.5}})
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        "no findings in 1 run with answers and no selections",
    )


def shifted_logs(folder):
    """Write two logs of the same questions, the second without the first question and numbered anew."""
    lines = documents(40)
    write_log(folder / "uniform", lines)
    moved = [{**item, "doc_id": at} for at, item in enumerate(lines[1:])]
    moved = [{**item, "acc": {"answer": "B", "parsed_pred": "B"}, "filtered_resps": ["B"]} for item in moved]
    write_log(folder / "aks", moved)
    return folder / "uniform", folder / "aks"


def test_logs_that_differ_by_a_line_pair_by_content_in_compare_and_in_one_run(tmp_path):
    paths = shifted_logs(tmp_path / "logs")
    table = run_comparison(*(run_of_logs(path, LogOptions()) for path in paths))
    assert table.rows[0].figures[1] == "39"
    assert table.notes[-1] == (
        "my_task@validation, Model-7B, K 8: 39 questions paired; 39 of them at another row; 1 missing in aks."
    )
    result = CliRunner().invoke(app, ["import", "lmms", str(tmp_path / "logs"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.exception
    frame = load_run(tmp_path / "run").answer_frame
    contents_by_question = frame.groupby("question_id")["content"].nunique()
    assert len(contents_by_question) == 40
    assert set(contents_by_question) == {1}


def test_prompts_that_differ_for_the_same_question_are_said(tmp_path):
    write_log(tmp_path / "a", documents(40))
    write_log(tmp_path / "b", [{**item, "input": f"{item['input']} Now!"} for item in documents(40)])
    table = run_comparison(*(run_of_logs(tmp_path / name, LogOptions()) for name in "ab"))
    assert "The prompts of 40 of 40 paired questions differ; the first is '0'." in table.notes


def test_compare_says_that_no_paired_question_has_a_score_in_both(tmp_path):
    write_log(tmp_path / "a", documents(4))
    run = run_of_logs(tmp_path / "a", LogOptions())
    unscored = replace(run, answers=[replace(row, score=None) for row in run.answers], name="b")
    reason = "no question of a and b has a score in both: a scores 4 of 4 answers and b scores 0 of 4 answers"
    with pytest.raises(InvalidInput, match=reason):
        run_comparison(run, unscored)


def test_compare_says_that_a_log_without_documents_is_the_cause(tmp_path):
    write_log(tmp_path / "a", documents(40))
    bare = [{name: value for name, value in item.items() if name != "doc"} for item in documents(40)]
    bare = [{**item, "input": f"Other words: {item['input']}"} for item in bare]
    write_log(tmp_path / "b", bare)
    cause = "b is a log without documents: its questions are known by their prompts alone"
    with pytest.raises(InvalidInput, match=rf"no cell and question in common \(.*; {cause}\)"):
        run_comparison(*(run_of_logs(tmp_path / name, LogOptions()) for name in "ab"))
    write_log(tmp_path / "c", bare[:39])
    table = run_comparison(*(run_of_logs(tmp_path / name, LogOptions()) for name in "cb"))
    assert table.notes[-2:] == (
        "c is a log without documents: its questions are known by their prompts alone.",
        "b is a log without documents: its questions are known by their prompts alone.",
    )


def test_the_same_benchmark_under_another_task_name_is_compared_and_named(tmp_path):
    write_log(tmp_path / "a", documents(40))
    write_log(tmp_path / "b", documents(40), task="my_task_aks")
    table = run_comparison(*(run_of_logs(tmp_path / name, LogOptions()) for name in "ab"))
    assert "a calls these questions my_task@validation, b my_task_aks@validation: paired by content." in table.notes
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert "the same questions under several task names" in " ".join(result.output.split())


def test_several_logs_of_one_task_in_a_folder_are_named_and_asked_for(tmp_path):
    write_log(tmp_path / "a", documents(3))
    for stamp in ("20260102_000000", "20260103_000000"):
        (folder := tmp_path / "b").mkdir(exist_ok=True)
        for file in (tmp_path / "a").iterdir():
            (folder / f"{stamp}_{file.name.split('_', 2)[2]}").write_bytes(file.read_bytes())
    with pytest.raises(InvalidInput, match=r"b: 2 cells could be meant, name the file of one log: b/20260102"):
        run_comparison(*(run_of_logs(tmp_path / name, LogOptions()) for name in "ab"))
    result = CliRunner().invoke(app, ["import", "lmms", str(tmp_path / "b"), "--out", str(tmp_path / "run")])
    assert "2 logs of my_task and Model-7B, each a selection of its own" in " ".join(result.output.split())


def test_a_renamed_results_file_is_named(tmp_path):
    path = write_log(tmp_path, documents(3))
    path.with_name("20260101_120000_results.json").rename(tmp_path / "old_results.json")
    with pytest.raises(InvalidInput, match=r"old_results\.json: renamed\? A run's is 20260101_120000_results\.json"):
        run_of_logs(tmp_path, LogOptions())


def test_a_log_and_its_import_are_audited_alike(tmp_path):
    rows = [{"id": key, "position": [48, 72 + at]} for at, key in enumerate(IDS)]
    document = {
        "video_path": "v.mp4",
        "question": "why?",
        "candidates": ["x", "y"],
        "correct_choice": 1,
        "duration": 99,
    }
    documents = [{**document, **row, "indices": row["position"]} for row in rows]
    (tmp_path / "lvb.json").write_text(json.dumps([{**document, **row} for row in rows]))
    (tmp_path / "rates.csv").write_text("\n".join(["id,duration_s,fps", *(f"{key},99,30" for key in IDS)]))
    unparsed_record = {"filtered_resps": ["none in THE BAR"], "lvb_acc": {"answer": "B", "parsed_pred": "B"}}
    worth = {"filtered_resps": ["it is y"], "lvb_acc": {"answer": "B", "score": 1.0}}
    lines = [{**line(n, doc=doc), **(worth if n else unparsed_record)} for n, doc in enumerate(documents)]
    write_log(
        tmp_path / "log",
        [{k: v for k, v in row.items() if k != "acc"} for row in lines],
        task="longvideobench_val_v",
        results={"longvideobench_val_v": {"lvb_acc,none": 1.0}},
    )
    audit_options = [
        "--frames-field",
        "indices",
        "--annotations",
        tmp_path / "lvb.json",
        "--rates",
        tmp_path / "rates.csv",
    ]
    command = ["import", "lmms", tmp_path / "log", "--out", tmp_path / "run", *audit_options]
    result = CliRunner().invoke(app, [str(word) for word in command])
    assert result.exit_code == 0, result.exception
    logged, imported = ([str(word) for word in ("audit", tmp_path / name, *audit_options)] for name in ("log", "run"))
    expected = [
        "answers not parsed: 1 of 40",
        "fewer distinct frames than K = 8: 40 of 40",
        "annotated positions taken as native frame numbers: 40 of 40",
    ]
    for words in (logged, imported):
        output = " ".join(CliRunner().invoke(app, words).output.split())
        assert all(text in output for text in expected), output
        assert "1 fault and 2 notes" in output


@pytest.mark.slow
def test_the_public_logs_give_the_known_findings(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    options = ReadingOptions(frames_field="indices", questions=questions, rates=rates)
    logs = sorted(shared("data/field/lmms_logs").glob("*/"))
    findings = audit(series_of(read_runs([path for path in logs if path.is_dir()], options)[0], questions))
    by_run = {(finding.subject, finding.check.split(" (")[0]): finding for finding in findings}
    position = by_run["lvb_oracle", "annotated positions taken as native frame numbers"]
    assert (position.count, position.of) == (920, 920)
    assert by_run["lvb_aks", "fewer distinct frames than K = 32"].count == 259
    assert by_run["lvb_scenes", "answers not parsed"].count == 11
    # It states 8 frames, feeds one question 11 and the others as many as they have moments: none falls short of a K.
    assert not [check for run, check in by_run if run == "lvb_oracle" and "distinct frames" in check]
    (agreement,) = [finding for finding in findings if "pairs of runs" in finding.check]
    assert "2,694 of 2,700 (99.78 %), the frames are not in the logs" in agreement.worst
    # Honest ones: nothing about agreement, past ends or accuracies of uniform, AKS and scenes.
    assert {check for run, check in by_run if run in ("lvb_uniform", "lvb_aks", "lvb_scenes")} == {
        "answers not parsed",
        "fewer distinct frames than K = 32",
        "AKS left the whole video unsplit",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("k", "n_elsewhere", "difference"), [(8, 411, "+10.4"), (16, 417, "+3.3"), (32, 451, "+6.1")])
def test_half_arrived_selections_of_the_public_logs_are_found(shared, k, n_elsewhere, difference):
    paths = [shared(f"data/public/lmms_logs/videoevalpro_{name}nframes_{k}") for name in ("", "aks_")]
    findings = audit(series_of(read_runs(paths, ReadingOptions(frames_field="indices"))[0]))
    (fault,) = [finding for finding in findings if finding.severity == FAULT]
    assert (fault.count, fault.of) == (590, 1262)
    assert f"the same answers in 590 of 590, elsewhere in {n_elsewhere} of 672" in fault.worst
    assert f"({difference} points), there" in fault.worst
    assert {finding.check for finding in findings[1:]} == {
        "questions asked more than once",
        "runs that lack questions of the others",
    }


@pytest.mark.slow
def test_public_logs_that_differ_by_a_line_pair_by_content(shared, tmp_path):
    paths = [shared(f"data/public/lmms_logs/videoevalpro_{name}nframes_8") for name in ("", "aks_")]
    table = run_comparison(*(run_of_logs(path, LogOptions()) for path in paths))
    (note,) = [note for note in table.notes if "questions paired" in note]
    assert note.endswith(
        "1,262 questions paired; 33 of them at another row; 26 of videoevalpro_nframes_8 ambiguous (the same content "
        "twice); 26 of videoevalpro_aks_nframes_8 ambiguous (the same content twice); 1 missing in "
        "videoevalpro_aks_nframes_8."
    )
    joined = joined_run([run_of_logs(path, LogOptions()) for path in paths])
    answered = joined.answer_frame.groupby("question_id")["label"].nunique()
    assert int((answered == 2).sum()) == 1262


@pytest.mark.slow
def test_the_field_that_was_not_fed_is_found_in_the_public_logs(shared):
    folder = shared("data/field/lmms_logs")
    paths = [folder / f"lvb_{name}" for name in ("uniform", "aks", "scenes")]
    findings = audit(series_of(read_runs(paths, ReadingOptions(frames_field="frame_idx"))[0]))
    (same_fields,) = [finding for finding in findings if "is this the field that was fed?" in finding.check]
    assert (same_fields.count, same_fields.of) == (3, 3)


@pytest.mark.slow
def test_a_published_selection_past_its_videos_end_is_found(shared, tmp_path):
    file = tmp_path / "wfs_lvb_32.json"
    file.write_bytes(gzip.decompress(shared("data/field/selections/wfs_lvb_32.json.gz").read_bytes()))
    arguments = ["audit", file, "--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    assert "3hyPwjkdHEA_1: frame 9180, video has 9102" in result.output
    assert "1 fault and no notes in no runs with answers and 1 selection" in result.output


def test_our_own_run_without_flaws_has_exit_code_0(tmp_path):
    folder = simulate_run(tmp_path / "r", Simulation(n_questions=36, samplers=("uniform", "topk")))
    result = CliRunner().invoke(app, ["audit", str(folder)])
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        "no findings in 2 runs with answers and no selections",
    )


def test_a_field_that_no_line_has_is_noted(tmp_path):
    write_log(tmp_path, [line(0, doc=None)])
    result = CliRunner().invoke(app, ["audit", str(tmp_path), "--frames-field", "indices"])
    assert "frames not read (no field 'indices' in any line)" in " ".join(result.output.split())


def test_a_damaged_log_is_a_finding_and_another_path_is_refused(tmp_path):
    lines = [{"doc_id": i, "target": "A", "filtered_resps": ["A"], "acc": 1.0, "input": "?"} for i in range(3)]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "1_samples_t.jsonl").write_text(text[:-10])
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert result.exit_code == 1
    assert "1_samples_t.jsonl:3: cut off" in result.output
    with pytest.raises(InvalidInput, match="no such file or folder"):
        read_runs([tmp_path / "no"], ReadingOptions())
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="neither a run"):
        read_runs([tmp_path / "empty"], ReadingOptions())


def test_audit_reads_a_packed_run(tmp_path):
    folder = simulate_run(tmp_path / "r", Simulation(n_questions=12, samplers=("uniform", "topk")))
    pack_run(folder, tmp_path / "r.zip")
    outputs = [CliRunner().invoke(app, ["audit", str(path)]).output for path in (folder, tmp_path / "r.zip")]
    assert outputs[0] == outputs[1] != ""


def test_runs_on_files_of_other_sizes_are_told_apart(tmp_path):
    folders = [simulate_run(tmp_path / name, Simulation(n_questions=36, samplers=("topk",))) for name in ("a", "b")]
    for folder, size in zip(folders, (1000, 1234), strict=True):
        part = next((folder / "selections").iterdir())
        row = next(iter(load_run(folder).selections))
        states = {row.video: SeenState(size, 1), "same.mp4": SeenState(5, size)}
        record = SeenVideos(benchmark=row.benchmark, folder=str(folder))
        write_seen_videos(part, record.updated(str(folder), states, ()))
    result = CliRunner().invoke(app, ["audit", *map(str, folders)])
    text = " ".join(result.output.split())
    assert "videos whose files differ between runs: 1 of 2" in text
    assert "1,000 bytes in a, 1,234 bytes in b" in text
    assert "videos whose" not in CliRunner().invoke(app, ["audit", str(folders[0])]).output


@pytest.mark.parametrize(("n_alike", "n"), [(30, 30), (99, 100), (990, 1000)])
def test_the_chance_of_honest_agreement_is_the_tail_of_a_binomial(n_alike, n):
    chances = [math.comb(n, at) * 0.98**at * 0.02 ** (n - at) for at in range(n_alike, n + 1)]
    assert _chance_of_agreement(n_alike, n) == pytest.approx(math.fsum(chances))
    # Of so many questions a single term of the sum is no float any more.
    assert _chance_of_agreement(1000 * n_alike, 1000 * n) < 1e-12


def test_benchmarks_that_number_their_questions_alike_are_apart_and_failures_are_told(tmp_path):
    run = load_run(simulate_run(tmp_path / "r", Simulation(n_questions=12, samplers=("uniform", "topk"))))
    mlvu_answers = [replace(row, benchmark="mlvu") for row in run.answers]
    cell = mlvu_answers[0].cell_id
    n_failed = sum(row.cell_id == cell for row in mlvu_answers) - 1
    mlvu_answers = [
        row if row.cell_id != cell or row is mlvu_answers[0] else replace(row, error="no memory")
        for row in mlvu_answers
    ]
    joint_run = Run(
        "both",
        [*run.selections, *(replace(row, benchmark="mlvu") for row in run.selections)],
        [*run.answers, *mlvu_answers],
        {},
    )
    series = series_of([joint_run])
    assert sum(len(item.answers) for item in series) == sum(row.error is None for row in joint_run.answers)
    findings = {found.subject: found for found in audit(series) if found.check == "questions that failed"}
    (finding,) = [found for subject, found in findings.items() if "mlvu" in subject]
    assert (finding.severity, finding.count, finding.of) == (NOTE, n_failed, n_failed + 1)
    assert "no memory" in finding.worst


def test_compare_says_that_two_runs_are_of_other_benchmarks(tmp_path):
    write_log(tmp_path / "a", documents(40))
    other = [{**item, "doc": {**item["doc"], "question": f"Other {at}?"}} for at, item in enumerate(documents(40))]
    write_log(tmp_path / "b", other, task="other_task")
    runs = [run_of_logs(tmp_path / name, LogOptions()) for name in "ab"]
    with pytest.raises(
        InvalidInput, match=r"but other benchmarks: a \(.*, K 8\), and b \(other_task@validation, .* \(0"
    ):
        run_comparison(*runs)
