"""Published selections: every row whose file is there is measured again; the page by length is what the files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from focus_eval_research.field_data import videomme
from focus_eval_research.leaderboard import (
    DIFFERENCES,
    MEASURES,
    RECALLS,
    difference_records,
    leaderboard_figures,
    page_text,
    random_nearness,
    recall_records,
    shown_figures,
    update_page,
)
from focus_eval_research.published import check_file, find_file, read_published
from focus_eval_research.replayed import Ground, Group, question_figures, uniform_frames

from focus_eval.bench.benchmarks.registry import frame_rates, read_annotations, read_rates, stated_rates
from focus_eval.bench.report.recall import EvidenceCase, distances, nearness_of
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.external.imports.loading import load_selections, selection_rows
from focus_eval.external.selection_layouts import ShownFrames, shown_frames

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "research" / "results" / "leaderboard"
RECORDED, RECORDED_DIFFERENCES = RECALLS.read(RECORDS), DIFFERENCES.read(RECORDS)
FILES = read_published()


@pytest.fixture(scope="module")
def grounds(shared):
    """Questions, rates and evidence of the three benchmarks."""
    lvb = read_annotations("longvideobench", shared("data/lvb_val.json"))
    lvbench = read_annotations("lvbench", shared("data/field/evidence/lvbench_video_info.meta.jsonl.gz"))
    shared("data/public/evidence")
    ground_by_benchmark = {}
    for name, questions, rates in (
        ("longvideobench", lvb, read_rates(shared("data/lvb_val_fps.csv"))),
        ("lvbench", lvbench, stated_rates(lvbench)),
        ("videomme", *videomme(shared("data"))),
    ):
        ground_by_benchmark[name] = (questions, rates, Ground.of(name, questions, frame_rates(rates)))
    return ground_by_benchmark


def figures_of(entry, file, grounds):
    questions, rates, ground = grounds[entry.benchmark]
    fps = frame_rates(rates)
    loaded = load_selections(
        file, format=entry.format, questions=questions, fps=fps, allow_missing=True, allow_outside=True
    )
    rows = selection_rows(loaded, questions, rates, name=entry.file)
    return ground, loaded, leaderboard_figures(ground, shown_frames(rows))


def group(ground, k, frames):
    frames = {**frames, "uniform": uniform_frames(ground, k)}
    return Group(ground=ground, k=k, frames=frames, notes=())


@pytest.mark.parametrize("item", FILES, ids=lambda item: f"{item.name}, {item.file}")
def test_a_row_is_what_its_file_gives(shared, grounds, item):
    file = find_file(item, shared("data"))
    check_file(item, file)
    ground, loaded, figures = figures_of(item, file, grounds)
    assert all(record in RECORDED for record in recall_records(ground, item.name, item.k, figures))
    assert max(len(entry.shown) for entry in loaded.values()) == item.k


@pytest.mark.parametrize(("seconds", "is_long"), [(179.9, False), (180.0, True), (600.0, True), (None, False)])
def test_videos_of_three_minutes_and_more_are_judged(seconds, is_long):
    case = EvidenceCase(
        question_id="q", bucket="", evidence_seconds=np.array([1.0]), duration_seconds=seconds, fps=25.0, n_frames=5000
    )
    ground = Ground(benchmark="b", cases=(case,), scenes={"q": [[(1.0, 1.0)]]}, kind="moments", videos={"q": "v"})
    assert ground.is_long.tolist() == [is_long]
    assert ground.videos_of(ground.is_long) == ["v"] * is_long


def test_there_are_fourteen_selections_and_more_of_two_benchmarks_and_a_third_benchmark():
    for benchmark in ("longvideobench", "videomme"):
        assert len([item for item in FILES if item.benchmark == benchmark]) >= 14
    assert {item.k for item in FILES} == {8, 16, 32, 64}
    assert {row["benchmark"] for row in RECORDED} == {"longvideobench", "lvbench", "videomme"}


def test_the_baselines_are_what_they_were(grounds):
    for benchmark, k in (("longvideobench", 8), ("lvbench", 64), ("videomme", 16)):
        ground = grounds[benchmark][2]
        for name, figures in shown_figures(group(ground, k, {})).items():
            assert all(record in RECORDED for record in recall_records(ground, name, k, figures))


def test_the_differences_of_a_k_are_what_the_files_give(shared, grounds):
    files = {item.name: item for item in FILES if (item.benchmark, item.k) == ("longvideobench", 64)}
    figures = {name: figures_of(item, find_file(item, shared("data")), grounds)[2] for name, item in files.items()}
    ground = grounds["longvideobench"][2]
    figures["uniform"] = question_figures(ground, uniform_frames(ground, 64))
    recorded = [row for row in RECORDED_DIFFERENCES if (row["benchmark"], row["k"]) == ("longvideobench", "64")]
    assert difference_records(ground, 64, figures) == recorded
    points = {
        (row["name"], row["measure"]): [round(100 * float(row[name]), 1) for name in ("value", "low", "high")]
        for row in recorded
    }
    assert points["ASCS", "within 1 s"] == [-5.8, -8.8, -2.7]
    assert points["ASCS", "within 5 s"] == [6.0, 3.6, 8.4]
    assert points["TSPO", "within 2 s"] == [-2.4, -5.0, 0.2]


def test_the_rates_of_video_mme_make_published_times_whole_frames(shared, grounds):
    questions, rates, _ = grounds["videomme"]
    timed = load_selections(shared("data/public/selections/kfs_ascs_videomme_64.json.gz"), questions=questions)
    even = load_selections(shared("data/public/selections/videomme_fps_4_64.csv.gz"), questions=questions)
    for question_id, rate in rates.items():
        frames = np.array(timed[question_id].selection.times_seconds) * float(rate.fps)
        assert frames == pytest.approx(np.round(frames), abs=0.01), question_id
        assert rate.n_frames == even[question_id].selection.keyframes[-1] + 1


def test_a_scene_is_hit_in_any_of_its_parts_and_no_selection_shows_nothing():
    question = Question(
        benchmark="videomme", id="q", query="?", options=(), video="v", answer=None, duration_seconds=100.0,
        evidence_intervals=((10.0, 12.0), (50.0, 52.0), (90.0, 91.0)), evidence_scenes=(0, 0, 1), bucket="long",
    )  # fmt: skip
    ground = Ground.of("videomme", [question], {"q": 1.0})
    (shown,) = leaderboard_figures(ground, {"q": ShownFrames([51.0, 87.0])}).to_dict("records")
    assert (shown["within 0 s"], shown["within 2 s"], shown["within 5 s"]) == (0.5, 0.5, 1.0)
    assert shown["nearness"] == pytest.approx((1 + np.exp(-3 / 5)) / 2)
    (nothing,) = leaderboard_figures(ground, {}).to_dict("records")
    assert set(nothing.values()) == {0.0}
    (record,) = recall_records(ground, "n", 2, leaderboard_figures(ground, {}))
    assert float(record["UKSS"]) == 0.01


def test_toolmerges_recall_is_the_recorded_one():
    of_benchmark = [row for row in RECORDED if row["benchmark"] == "longvideobench"]
    rows = {(row["name"], row["k"], row["bucket"]): row for row in of_benchmark}
    recorded = {
        "8": (("0.1168", "0.1787", "0.3339"), ("0.1895", "0.3192", "0.5510")),
        "32": (("0.1802", "0.2747", "0.5472"), ("0.2944", "0.5011", "0.7862")),
    }
    for k, figures in recorded.items():
        for bucket, expected in zip(("long", "medium"), figures, strict=True):
            row = rows["ToolMerge (Qwen3-VL-8B)", k, bucket]
            assert tuple(f"{float(row[f'within {d} s']):.4f}" for d in (1, 2, 5)) == expected


def test_the_page_shows_the_figures_of_the_csv_files(tmp_path):
    page = tmp_path / "page.md"
    page.write_text((ROOT / "research/docs/leaderboard.md").read_text(encoding="utf-8"))
    update_page(page, RECORDS, FILES)
    assert page.read_text() == (ROOT / "research/docs/leaderboard.md").read_text(encoding="utf-8")


def test_the_page_leaves_out_variants_short_videos_and_random_frames():
    text = page_text(RECORDED, RECORDED_DIFFERENCES, FILES)
    assert [line.split(" | ")[1] for line in text.splitlines() if "| LVU" in line] == ["LVU scenes 1.0"]
    assert "short" not in text
    assert "random" not in text
    assert {row["bucket"] for row in RECORDED if row["name"] == "LVU scenes 0.5"} == {"short", "medium", "long"}


def test_the_nearness_of_random_frames_is_its_mean_over_many_draws():
    case = EvidenceCase(
        question_id="q", bucket="long", evidence_seconds=np.zeros(0), duration_seconds=40.0, fps=10.0, n_frames=400
    )
    intervals = [(3.0, 3.0), (30.0, 32.5)]
    rng = np.random.default_rng(0)
    drawn = [nearness_of(distances(intervals, rng.choice(400, 4, replace=False) / 10)) for _ in range(4000)]
    assert random_nearness(intervals, case, 4) == pytest.approx(np.mean(drawn), abs=0.01)
    all_frames = nearness_of(distances(intervals, np.arange(400) / 10))
    assert random_nearness(intervals, case, 400) == pytest.approx(all_frames)


def test_a_page_or_a_csv_file_of_something_else_says_so(tmp_path):
    page, file = tmp_path / "e.md", tmp_path / RECALLS.name
    page.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="put the table between"):
        update_page(page, tmp_path, [])
    file.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="its columns are a, b"):
        RECALLS.read(tmp_path)
    file.unlink()
    assert RECALLS.update(tmp_path, []) == RECALLS.read(tmp_path) == []
    file.write_text(file.read_text() + "longvideobench,AKS\n")
    with pytest.raises(InvalidInput, match="its columns are benchmark, name"):
        RECALLS.read(tmp_path)


def record(benchmark="a", name="A", k="8", figure="0.1"):
    keys = {"benchmark": benchmark, "name": name, "k": k, "bucket": "all", "questions": "1", "frames": "8"}
    return {**keys, **dict.fromkeys(MEASURES, figure)}


def test_rows_lie_by_benchmark_and_number_of_frames_baselines_first_then_by_name(tmp_path):
    keys = [("b", "uniform", "8"), ("a", "Z", "64"), ("a", "B", "8"), ("a", "uniform", "8"), ("a", "A", "16"),
            ("a", "random", "8"), ("a", "A", "8")]  # fmt: skip
    rows = RECALLS.update(tmp_path, [record(*place) for place in keys])
    assert [(row["benchmark"], row["k"], row["name"]) for row in rows] == [
        ("a", "8", "random"), ("a", "8", "uniform"), ("a", "8", "A"), ("a", "8", "B"), ("a", "16", "A"),
        ("a", "64", "Z"), ("b", "8", "uniform"),
    ]  # fmt: skip


def test_records_are_written_as_they_are_read(tmp_path):
    for file in (RECALLS, DIFFERENCES):
        records = file.read(RECORDS)
        file.update(tmp_path, records)
        assert (tmp_path / file.name).read_bytes() == (RECORDS / file.name).read_bytes()
        assert file.update(tmp_path, records[3:5]) == records


def test_another_file_under_a_listed_name_and_a_name_listed_twice_are_refused(tmp_path):
    (tmp_path / "near.json").write_text("{}")
    entry = "{benchmark: longvideobench, k: 3, format: qca, file: near.json, sha256: ab}"
    (tmp_path / "list.yaml").write_text(f"Near: [{entry}]\n")
    (item,) = read_published(tmp_path / "list.yaml")
    with pytest.raises(InvalidInput, match=r"near.json: sha256 is [0-9a-f]{64}, listed for Near \(K = 3\) is 'ab'"):
        check_file(item, find_file(item, tmp_path))
    (tmp_path / "list.yaml").write_text(f"Near: [{entry}, {entry}]\n")
    with pytest.raises(InvalidInput, match="two files of Near, longvideobench, K = 3"):
        read_published(tmp_path / "list.yaml")
