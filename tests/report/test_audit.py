"""The audit: each finding planted alone is found and nothing else is; the public files give the known findings."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from focus_eval.benchmarks.registry import read_annotations, read_rates
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.report.audit import AuditedAnswer, AuditedRun, audit
from focus_eval.report.audit_reading import AuditSource, position_fps_of, read_paths
from tests.report.simulated import Simulation, simulate_run
from tests.selections.test_lmms_logs import line, write_log

IDS = [f"q{i}" for i in range(40)]


def honest(name="a", *, group="task model", shift=0, answers=True):
    """A run without a flaw: 8 frames of 1000 each, other frames in every question."""
    said = {
        key: AuditedAnswer(text="ABCD"[(at + shift) % 4], score=float((at + shift) % 4 == 0), prompt=key)
        for at, key in enumerate(IDS)
    }
    return AuditedRun(
        name=name,
        group=group,
        answers=said if answers else {},
        frames={key: tuple(float(100 * i + at + shift) for i in range(8)) for at, key in enumerate(IDS)},
        k=8,
        lengths=dict.fromkeys(IDS, (1000.0, 1000.0)),
        positions=dict.fromkeys(IDS, (7, 11)),
        expected=frozenset(IDS),
        stated_accuracy=0.25 if answers else None,
        stated_questions=len(IDS),
    )


def frames(run, **changed):
    return replace(run, frames={**run.frames, **changed})


def test_honest_runs_give_no_finding():
    assert audit([honest("a"), honest("b", shift=1), honest("c", answers=False)]) == []


@pytest.mark.parametrize(
    ("flaw", "check", "count"),
    [
        (lambda run: replace(run, problems=("f:3: cut off",)), "not readable", 1),
        (lambda run: replace(run, expected=run.expected | {"z"}), "missing questions", 1),
        (lambda run: replace(run, expected=run.expected - {"q0"}), "not the benchmark's", 1),
        (lambda run: replace(run, stated_questions=41), "its results file counts", 40),
        (lambda run: replace(run, stated_accuracy=0.3), "does not follow from the rows", 40),
        (
            lambda run: replace(run, answers={**run.answers, "q0": replace(run.answers["q0"], is_parsed=False)}),
            "not parsed",
            1,
        ),
        (lambda run: frames(run, q0=(*range(7), 1000)), "past the end", 1),
        (lambda run: frames(run, q0=(5, 4, *range(10, 16))), "not in order", 1),
        (lambda run: frames(run, q0=tuple(range(7))), "fewer distinct frames", 1),
        (lambda run: replace(run, frames={key: tuple(range(8)) for key in IDS}), "same frames in every question", 40),
        (lambda run: replace(run, k=None, frames={key: (at,) * 2 for at, key in enumerate(IDS)}), "over and over", 40),
        (
            lambda run: replace(run, frames={key: (7, 11, *range(20 + at, 26 + at)) for at, key in enumerate(IDS)}),
            "taken as native",
            40,
        ),
        (
            lambda run: replace(run, answers={**run.answers, "q0": replace(run.answers["q0"], fed=(1.0,))}),
            "other frames fed",
            1,
        ),
    ],
)
def test_each_flaw_of_a_run_is_found_and_nothing_else_but_what_follows(flaw, check, count):
    found = [finding for finding in audit([flaw(honest())]) if check in finding.check]
    assert [finding.count for finding in found] == [count]
    others = {finding.check for finding in audit([flaw(honest())])} - {found[0].check}
    assert others <= {"frames that repeat"}


def test_a_frame_that_stands_twice_is_a_repeat_and_too_few():
    found = audit([frames(honest(), q0=(1, 1, 2, 3, 4, 5, 6, 7))])
    assert [finding.check for finding in found] == ["frames that repeat", "fewer distinct frames than K = 8"]
    assert found[0].worst == "q0: 1 of 8 frames repeat another"


def test_a_selection_that_never_reached_the_model_is_found_with_and_without_frames():
    a, b = honest("a"), honest("b", shift=1)
    b = replace(b, answers=a.answers)
    (found,) = audit([a, b])
    assert "did the selection reach the model?" in found.check
    assert found.worst == "a and b: 40 of 40 (100.00 %), from other frames"
    (found,) = audit([replace(a, frames={}), replace(b, frames={})])
    assert found.worst.endswith("the frames are not in the logs")
    assert audit([a, replace(b, frames=a.frames)]) == []  # the same frames may give the same answers
    assert audit([a, replace(b, group="another model")]) == []


def test_a_field_that_was_not_fed_is_found():
    a, b = honest("a"), replace(honest("b", shift=1), frames=honest("a").frames)
    (found,) = audit([a, b])
    assert "is this the field that was fed?" in found.check
    assert "up to 100.0 %" in found.worst


def test_runs_of_ours_may_show_the_same_frames_under_two_seeds():
    a = replace(honest("a"), are_frames_sure=True)
    assert audit([a, replace(a, name="b", answers=honest("b", shift=1).answers)]) == []


def test_a_video_with_fewer_frames_than_k_is_no_finding():
    run = frames(honest(), q0=(0, 1, 2))
    assert audit([replace(run, lengths={**run.lengths, "q0": (3.0, 3.0)})]) == []


def test_an_accuracy_that_is_a_mean_over_types_follows_from_the_rows():
    run = honest()
    typed = {
        key: replace(answer, category="a" if at < 30 else "b") for at, (key, answer) in enumerate(run.answers.items())
    }
    of_types = [[answer.score for answer in typed.values() if answer.category == name] for name in ("a", "b")]
    stated = sum(sum(scores) / len(scores) for scores in of_types) / 2
    assert stated != 0.25
    assert audit([replace(run, answers=typed, stated_accuracy=stated)]) == []
    (found,) = audit([replace(run, answers=typed, stated_accuracy=0.5)])
    assert found.worst == f"stated 0.50000, the rows give 0.25000 ({stated:.5f} over 2 types)"


def test_other_prompts_and_other_questions_of_a_pair_are_found():
    a, b = honest("a"), honest("b", shift=1)
    asked = {**b.answers, "q3": replace(b.answers["q3"], prompt="another")}
    (found,) = audit([a, replace(b, answers=asked)])
    assert found.worst == "a and b: 1 of 40 questions, the first is q3"
    fewer = {key: answer for key, answer in b.answers.items() if key != "q5"}
    shown = {key: value for key, value in b.frames.items() if key != "q5"}
    checks = [finding.check for finding in audit([a, replace(b, answers=fewer, frames=shown)])]
    assert "runs that lack questions of the others" in checks


def test_a_log_and_its_import_are_audited_alike(tmp_path):
    rows = [{"id": key, "position": [48, 72 + at]} for at, key in enumerate(IDS)]
    asked = {"video_path": "v.mp4", "question": "why?", "candidates": ["x", "y"], "correct_choice": 1, "duration": 99}
    documents = [{**asked, **row, "indices": row["position"]} for row in rows]
    (tmp_path / "lvb.json").write_text(json.dumps([{**asked, **row} for row in rows]))
    (tmp_path / "rates.csv").write_text("\n".join(["id,duration_s,fps", *(f"{key},99,30" for key in IDS)]))
    said = {"filtered_resps": ["none in THE BAR"], "lvb_acc": {"answer": "B", "parsed_pred": "B"}}
    worth = {"filtered_resps": ["it is y"], "lvb_acc": {"answer": "B", "score": 1.0}}
    lines = [{**line(n, doc=doc), **(worth if n else said)} for n, doc in enumerate(documents)]
    write_log(
        tmp_path / "log",
        [{k: v for k, v in row.items() if k != "acc"} for row in lines],
        task="longvideobench_val_v",
        results={"longvideobench_val_v": {"lvb_acc,none": 1.0}},
    )
    given = ["--frames-field", "indices", "--annotations", tmp_path / "lvb.json", "--rates", tmp_path / "rates.csv"]
    command = ["import", "lmms", tmp_path / "log", "--out", tmp_path / "run", *given]
    done = CliRunner().invoke(app, [str(word) for word in command])
    assert done.exit_code == 0, done.exception
    logged, imported = ([str(word) for word in ("audit", tmp_path / name, *given)] for name in ("log", "run"))
    expected = [
        "answers not parsed: 1 of 40",
        "fewer distinct frames than K = 8: 40 of 40",
        "annotated positions taken as native frame numbers: 40 of 40",
    ]
    for words in (logged, imported):
        found = " ".join(CliRunner().invoke(app, words).output.split())
        assert all(text in found for text in expected), found
        assert "3 findings" in found


def test_the_public_logs_give_the_known_findings(shared):
    source = AuditSource(
        frames_field="indices",
        questions=read_annotations("longvideobench", shared("data/lvb_val.json")),
        rates=read_rates(shared("data/lvb_val_fps.csv")),
        position_fps=position_fps_of("longvideobench"),
    )
    logs = sorted(shared("data/field/lmms_logs").glob("*/"))
    found = audit(read_paths([path for path in logs if path.is_dir()], source).runs)
    by_run = {(finding.where, finding.check.split(" (")[0]): finding for finding in found}
    position = by_run["lvb_oracle", "annotated positions taken as native frame numbers"]
    assert (position.count, position.of) == (920, 920)
    assert by_run["lvb_aks", "fewer distinct frames than K = 32"].count == 259
    assert by_run["lvb_scenes", "answers not parsed"].count == 11
    (same,) = [finding for finding in found if "pairs of runs" in finding.check]
    assert "2,694 of 2,700 (99.78 %), the frames are not in the logs" in same.worst
    # Honest ones: nothing about agreement, past ends or accuracies of uniform, AKS and scenes.
    assert {check for run, check in by_run if run in ("lvb_uniform", "lvb_aks", "lvb_scenes")} == {
        "answers not parsed",
        "fewer distinct frames than K = 32",
    }


def test_the_field_that_was_not_fed_is_found_in_the_public_logs(shared):
    folder = shared("data/field/lmms_logs")
    paths = [folder / f"lvb_{name}" for name in ("uniform", "aks", "scenes")]
    found = audit(read_paths(paths, AuditSource(frames_field="frame_idx")).runs)
    (same,) = [finding for finding in found if "is this the field that was fed?" in finding.check]
    assert (same.count, same.of) == (3, 3)


def test_a_published_selection_past_its_videos_end_is_found(shared, tmp_path):
    file = tmp_path / "wfs_lvb_32.json"
    file.write_bytes(gzip.decompress(shared("data/field/selections/wfs_lvb_32.json.gz").read_bytes()))
    arguments = ["audit", file, "--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 1
    assert "3hyPwjkdHEA_1: frame 9180, video has 9102" in done.output
    assert "1 finding in 0 runs with answers and 1 selections" in done.output


def test_our_own_run_without_flaws_has_exit_code_0(tmp_path):
    folder = simulate_run(tmp_path / "r", Simulation(n_questions=36, samplers=("uniform", "topk")))
    done = CliRunner().invoke(app, ["audit", str(folder)])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "no findings in 2 runs with answers and 0 selections")


def test_a_field_that_no_line_has_is_noted(tmp_path):
    write_log(tmp_path, [line(0, doc=None)])
    done = CliRunner().invoke(app, ["audit", str(tmp_path), "--frames-field", "indices"])
    assert "frames not read (no field 'indices' in some lines)" in " ".join(done.output.split())


def test_a_damaged_log_is_a_finding_and_another_path_is_refused(tmp_path):
    lines = [{"doc_id": i, "target": "A", "filtered_resps": ["A"], "acc": 1.0, "input": "?"} for i in range(3)]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "1_samples_t.jsonl").write_text(text[:-10])
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert done.exit_code == 1
    assert "1_samples_t.jsonl:3: cut off" in done.output
    with pytest.raises(InvalidInput, match="no such file or folder"):
        read_paths([tmp_path / "no"], AuditSource())
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="neither a run"):
        read_paths([tmp_path / "empty"], AuditSource())
