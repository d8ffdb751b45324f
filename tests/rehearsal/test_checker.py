"""The formulas that reports are checked against give known figures, and a wrong figure is found."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from focus_eval.rows.records import AnswerRow, SelectionRow
from support.independent_costs import Cost, costs_of
from support.independent_formulas import holm, mean_with_interval, question_weights, sign_flip_p
from support.rehearsal_more import wrong_parts
from support.report_check import check_report


def test_sign_flips_are_counted_as_by_hand():
    assert sign_flip_p([1.0, 1.0, 1.0]) == pytest.approx(2 / 8)
    assert sign_flip_p([1.0, -1.0]) == 1.0
    assert sign_flip_p([0.0, 0.0]) == 1.0


def test_holm_never_lowers_a_p_value_below_a_smaller_one():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_task_types_weigh_the_same_and_the_directions_are_one_type():
    kinds = {1: "count", 2: "count", 3: "object_rel_direction_easy", 4: "object_rel_direction_hard"}
    assert question_weights(kinds) == pytest.approx({1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25})
    assert question_weights({1: "a", 2: "a", 3: "b"}) == pytest.approx({1: 0.25, 2: 0.25, 3: 0.5})


def test_four_videos_give_no_interval_and_five_do():
    scores = {at: (float(at % 2), f"video{at}", "") for at in range(5)}
    assert mean_with_interval({at: scores[at] for at in range(4)}, lambda _: "")[1:] == (None, None)
    mean, low, high = mean_with_interval(scores, lambda _: "")
    assert (mean, 0 < low < mean < high < 100) == (40.0, True)


def test_two_questions_share_a_frame_and_a_stored_frame_costs_a_mean_forward():
    made = [
        _selection("scan_cover", 0, at) for at in (0, 1)
    ]  # pulled 3 and 4, 4 distinct; scanned 13 each, 14 distinct
    rows = [dataclasses.asdict(row) for row in (*made, _selection("focus", 1, 1))]
    costs = costs_of({(row["benchmark"], row["question_id"], row["selection_id"]): row for row in rows})
    a_pull, a_scan, a_pair = 1 + 10.9 / 191.1, 4.4 / 191.1, 3.9 / 191.1
    first = Cost(forwards=1.5 * a_pull + 7 * a_scan + 3 * a_pair, seconds=0.5 + 2.6 + 12 + 1)
    # The run waited 0.25 + 0.25 s for 33 forwards, and a forward of the encoder took 4 s.
    stored = Cost(forwards=4 * a_pull + 4 * a_pair, seconds=1.5 + 4 * (4 + 0.5 / 33))
    assert [dataclasses.astuple(cost) for cost in costs.values()][::2] == [
        pytest.approx(dataclasses.astuple(cost)) for cost in (first, stored)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of rows and its report: three samplers, two seeds, two questions on each of six videos.

    One answer failed, one cannot be parsed; seed 1 found its frames in the store.
    """
    from focus_eval.commands.reports import report

    folder = tmp_path_factory.mktemp("reported") / "run"
    selections, answers = [], []
    for sampler in ("uniform", "focus", "scan_cover"):
        for seed in (0, 1):
            for at in range(12):
                selections.append(_selection(sampler, seed, at))
                answers.append(_answer(sampler, seed, at))
    for kind, rows in (("selections", selections), ("answers", answers)):
        (folder / kind / "part").mkdir(parents=True)
        lines = [json.dumps(dataclasses.asdict(row)) for row in rows]
        (folder / kind / "part" / "rank0.jsonl").write_text("\n".join(lines) + "\n")
    report(folder, table=None, baseline=None, videos=None, thumbnail_megabytes=1.0, link_thumbnails=False, html=False,
           out=None)  # fmt: skip
    return folder


@pytest.fixture
def reported(written, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "run"))


def test_every_figure_of_a_report_is_computed_again_from_its_rows(reported):
    checked = check_report(reported)
    assert checked.wrong == []
    assert checked.unknown == set()
    assert checked.figures > 40


COLUMNS = (
    "Overall", "Overall low", "Frames scored (%)", "Forward equivalents (%)", "Device-hours (cpu)", "unparsed", "p",
)  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_figure_that_the_rows_do_not_give_is_found(reported, column):
    name = "report-against_baseline.csv" if column == "p" else "report.csv"
    with open(reported / name, newline="") as file:
        lines = list(csv.DictReader(file))
    line = next(item for item in lines if item[column])
    line[column] = str(float(line[column]) + 0.01)
    with open(reported / name, "w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    wrong = check_report(reported).wrong
    assert len(wrong) == 1
    assert column in wrong[0]


def _selection(sampler, seed, at):
    pulled = list(range(at + 3)) if sampler != "uniform" else []
    scanned = [*range(0, 60, 5), 60 + at] if sampler == "scan_cover" else []
    made = seed == 0
    return SelectionRow(
        benchmark="longvideobench", question_id=f"q{at}", video=_video(at), query="what?",
        selection_id=f"{sampler}{seed}", sampler=sampler, options={}, encoder="blip" if pulled else "",
        encoder_revision="", k=2, seed=seed, bucket=("short", "medium", "long")[at // 2 % 3], duration_seconds=100.0,
        n_frames=1000, fps=10.0, keyframes=[10, 500], times_seconds=[1.0, 50.0 + at * seed], device="cpu",
        pulled_frames=pulled, evidence_seconds=[1.5, 52.0], pulled_relevance=[0.5] * len(pulled),
        scan_encoder="clip" if scanned else "", scanned_frames=scanned, scan_forwards=len(scanned) * made,
        gmacs={"image": 191.1, "keys": 10.9, "fusion": 3.9, "scan_image": 4.4} if pulled else {},
        seconds={"open": 0.5, "scan": 0.2 * len(scanned) * made, "encode": 4.0 * len(pulled) * made,
                 "select": 1.0, "idle": 0.25 * at, "decode": 9.0},
        forwards=len(pulled) * made,
    )  # fmt: skip


def _video(at):
    return f"v{at // 2}.mp4"


def _answer(sampler, seed, at):
    failed = sampler == "focus" and seed == 1 and at == 5
    parsed = None if failed or (sampler == "uniform" and at == 1) else "A"
    return AnswerRow(
        benchmark="longvideobench", question_id=f"q{at}", video=_video(at), selection_id=f"{sampler}{seed}",
        cell_id=f"{sampler}{seed}", cell=f"{sampler}{seed}", model="m", bucket=("short", "medium", "long")[at // 2 % 3],
        frames_asked=2, frames_chosen=2, frames_fed=2, answer="A", parsed=parsed, correct_answer="A",
        score=float(parsed is not None and (sampler != "uniform" or (at + seed) % 3 == 0)),
        error="broken" if failed else None,
    )  # fmt: skip


def test_a_part_without_rows_is_named_not_raised(tmp_path):
    (tmp_path / "answers" / "cell").mkdir(parents=True)
    (tmp_path / "answers" / "cell" / "cell.json").touch()
    assert list(wrong_parts(tmp_path)) == ["cell: no rows, holds cell.json"]
