"""A matrix with a scan encoder: named in three ways, counted by the plan, and found again by a run that was stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from focus_eval.bench.matrix.cells import all_encoders, check_lists, selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import make_plan
from focus_eval.bench.matrix.questions import load_questions
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.keyframes.encoders.cache import duplicate_cache
from focus_eval.keyframes.encoders.offline import OfflineScorer
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.bench.matrix_rows import run_matrix

from .conftest import lvb_question, write_simulation

pytest.importorskip("openvino", reason="the offline extra is not installed")

SMALL = {"encoder": "offline", "options": {"size": 64}}
# A clip is short: a twelfth of its frames may be spent.
COVER = {"share": 0.08, "scan_budget_share": 0.5}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """Two videos with two questions each, and no picture shown twice."""
    folder = tmp_path_factory.mktemp("rendered")
    rng, questions = np.random.default_rng(0), []
    for number in range(2):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=8, gop=24) as writer:
            for _ in range(96):
                writer.write(np.repeat(rng.integers(0, 256, (48, 1, 3), dtype=np.uint8), 64, axis=1))
        questions += [lvb_question(10 * number + part, f"v{number}", 12, answer=part) for part in range(2)]
    (folder / "questions.json").write_text(json.dumps(questions))
    return {
        "name": "scanning",
        "benchmarks": [
            {
                "name": "rendered",
                "benchmark": "longvideobench",
                "annotations": str(folder / "questions.json"),
                "videos": str(folder),
            }
        ],
        "encoders": ["offline"],
        "samplers": [{"sampler": "scan_cover", "options": {"scan_encoder": SMALL, **COVER}}],
        "k": [4],
    }


def load(folder, document, **changes):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "matrix.yaml").write_text(yaml.safe_dump({**document, **changes}))
    return load_matrix(folder / "matrix.yaml")


def rows_of(matrix, folder):
    run_matrix(matrix, out=folder)
    return [row for spec in selection_specs(matrix) for row in RunFolder(folder).selections(spec)]


def test_one_scan_encoder_named_in_three_ways_is_one_identity(document, tmp_path):
    def identity(scan_encoder, encoders):
        options = {"scan_encoder": scan_encoder, **COVER}
        samplers = [{"sampler": "scan_cover", "encoders": ["offline"], "options": options}]
        (spec,) = selection_specs(load(tmp_path, document, samplers=samplers, encoders=encoders))
        return spec.identity

    entry = {"name": "small", **SMALL}
    first = identity("offline:size=64", ["offline"])
    assert first["scan_encoder_revision"].endswith("64 px")
    assert first == identity(SMALL, ["offline"]) == identity("small", ["offline", entry])
    assert first != identity("offline:size=96", ["offline"])


def test_preflight_and_plan_see_the_scan_encoder(document, tmp_path):
    matrix = load(tmp_path, document)
    assert [encoder.name for encoder in all_encoders(matrix)] == ["offline", "offline_size=64"]
    plan, rows = make_plan(matrix), rows_of(matrix, tmp_path / "run")
    (selection,) = plan.selections
    assert selection.scanned == sum(len(row.scanned_frames) for row in rows) == 2 * selection.scanned_shared
    # An even pull may be a promising one as well, which depends on what is seen.
    assert selection.pulls == pytest.approx(sum(len(row.pulled_frames) for row in rows), abs=4)
    assert plan.forwards_by_encoder["offline_size=64"] == selection.scanned_shared
    assert plan.scan_pairs == {("offline_size=64", "offline"): pytest.approx(1 / 11.8, rel=0.01)}


def test_a_matrix_chooses_the_frames_that_python_chooses_and_questions_share_the_scan(document, tmp_path):
    matrix = load(tmp_path, document)
    duplicate_cache.cache_clear()
    rows = rows_of(matrix, tmp_path / "run")
    questions = load_questions(matrix.benchmarks[0])
    (spec,) = selection_specs(matrix)
    duplicate_cache.cache_clear()
    selector = Selector(
        sampler=spec.sampler, encoder=make_encoder("offline"), scan_encoder=make_encoder("offline:size=64"), k=4
    )
    for question, row in zip(questions.questions, rows, strict=True):
        single = selector.select(question, questions.video_path(question.video))
        assert (row.keyframes, row.pulled_frames, row.scanned_frames) == (
            single.keyframes,
            single.pulled_frames,
            single.scanned_frames,
        )
    assert [row.scan_forwards for row in rows] == [24, 0, 24, 0]
    assert [row.frames_scanned for row in rows] == [24] * 4
    assert all(row.decoded["all"] > 0 and row.seconds["scan"] > 0 for row in rows if row.scan_forwards)


def test_a_run_that_was_stopped_after_the_scan_finds_what_was_scanned(document, tmp_path, monkeypatch):
    matrix = load(tmp_path, document)
    duplicate_cache.cache_clear()
    whole = rows_of(matrix, tmp_path / "apart" / "run")
    duplicate_cache.cache_clear()
    embed = OfflineScorer.embed

    def stopped(self, frames):
        if self.size == 224:
            raise KeyboardInterrupt
        return embed(self, frames)

    with monkeypatch.context() as patch:
        patch.setattr(OfflineScorer, "embed", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_matrix(matrix, out=tmp_path / "run")
    duplicate_cache.cache_clear()
    rows = rows_of(matrix, tmp_path / "run")
    assert [row.keyframes for row in rows] == [row.keyframes for row in whole]
    assert [row.scanned_frames for row in rows] == [row.scanned_frames for row in whole]
    # Both videos may have been under way; of the first to reach the main encoder all scanned frames were kept.
    assert sum(row.scan_forwards for row in rows) <= 24 < sum(row.scan_forwards for row in whole) == 48


def test_recorded_relevance_may_scan_where_its_cost_is_given(tmp_path):
    scan = {"sampler": "scan_cover", "options": {"scan_encoder": "trace", "relative_cost": 0.05}}
    rows = rows_of(load_matrix(write_simulation(tmp_path / "s", samplers=[scan])), tmp_path / "run")
    assert all(row.error is None and row.frames_scanned > row.n_scored for row in rows)
    assert {row.facts["scan_encoder_is_encoder"] for row in rows} == {True}
    matrix, run = str(write_simulation(tmp_path / "s", samplers=[scan])), str(tmp_path / "run")
    plan = " ".join(CliRunner().invoke(app, ["plan", matrix, "--out", run]).output.split())
    assert "trace scans for trace: a frame costs 0.05 of a forward" in plan
    del scan["options"]["relative_cost"]
    with pytest.raises(InvalidInput, match="costs is not known; give it as a share"):
        run_matrix(load_matrix(write_simulation(tmp_path / "s", samplers=[scan])), out=tmp_path / "other")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, InvalidInput, "'scan_cover' scans with a second, cheap encoder: name it with scan_encoder=NAME"),
        ({"scan_encoder": "ofline"}, UnknownName, "did you mean 'offline'"),
        ({"scan_encoder": {"encoder": "offline", "options": {"sise": 64}}}, UnknownName, "did you mean 'size'"),
        ({"scan_encoder": {"encoder": "offline", "option": {}}}, InvalidInput, "option"),
        ({"scan_encoder": "offline", "share": {"a": 1}}, InvalidInput, "matrix.yaml:.*share"),
    ],
)
def test_a_scan_encoder_that_is_missing_or_wrong_is_refused(document, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        check_lists(load(tmp_path, document, samplers=[{"sampler": "scan_cover", "options": options}]))


def test_a_model_finds_the_frames_that_were_embedded_while_another_encoder_scanned(document, tmp_path):
    matrix = load(tmp_path, document, samplers=[*document["samplers"], "topk"])
    duplicate_cache.cache_clear()
    rows = rows_of(matrix, tmp_path / "run")
    videos, scorer = load_questions(matrix.benchmarks[0]), make_encoder("offline")
    topk = [row for row in rows if row.sampler == "topk"]
    assert len(topk) == 4
    for row in topk:
        with open_video(videos.video_path(row.video)) as reader:
            pictures = scorer.prepare(reader.read(np.array(row.pulled_frames)))
        _, computed = duplicate_cache(f"{scorer.name} {scorer.revision}").embed(pictures, scorer.embed)
        assert not computed.any()
