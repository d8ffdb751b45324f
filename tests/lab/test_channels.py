"""Does a simulated scan encoder see what its channel says, and is the main encoder's view left alone?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from focus_eval.bench.report import measures
from focus_eval.bench.report.measures import scan_notes
from focus_eval.bench.report.recall_layouts import lab_frame
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import StoredRows
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.lab.overview import recall_overview
from focus_eval.lab.simulation import SimulationConfig, run_simulation, select_on, selection_ids, trace_sources
from focus_eval.lab.traces import GRID_HZ, make_trace
from focus_eval.lab.worlds import CHANNELS, WORLDS, Channel, channel_of

CONFIG = SimulationConfig(
    videos=6,
    minutes=(2, 6),
    worlds=["smooth"],
    samplers=[
        "even_cover",
        "all_frames",
        {"sampler": "scan_only", "options": {"scan_encoder": "good"}},
        {"sampler": "scan_cover", "options": {"scan_encoder": "good"}, "budgets": True},
        {"sampler": "scan_cover", "options": {"scan_encoder": "useless"}},
        {"sampler": "scan_cover", "options": {"scan_encoder": "good:cost=0.5"}},
        {"sampler": "scan_cover", "options": {"scan_encoder": "good:cost=0.5", "shared_by": 2.0}},
        {"sampler": "even_cover", "options": {"shared_by": 3.0}},
    ],
    k=[4],
    budgets=[2.0],
    baseline="even_cover",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("channels")
    run_simulation(CONFIG, out, n_workers=1)
    return out


def latents(world, channel, *, numbers=range(30)):
    """Return latent relevance outside of and within events, each as the main and as the scan encoder see it."""
    outside, inside = [], []
    for number in numbers:
        pair = [make_trace(WORLDS[world], number, seed=3, minutes=(4, 20), channel=see) for see in (None, channel)]
        time = np.arange(pair[0].latent.size) / GRID_HZ
        moments = np.array(pair[0].evidence_seconds)
        is_near = (abs(time[:, None] - moments) < 10).any(axis=1)
        outside.append([trace.latent[~is_near] for trace in pair])
        inside.append([trace.latent[np.minimum((moments * GRID_HZ).astype(int), time.size - 1)] for trace in pair])
    return (np.concatenate(parts, axis=1) for parts in (outside, inside))


@pytest.mark.parametrize(("world", "name"), [("smooth", "fair"), ("flashes", "good"), ("cuts", "useless")])
def test_a_channel_has_its_correlation_and_its_height(world, name):
    background, events = latents(world, CHANNELS[name])
    assert np.corrcoef(background)[0, 1] == pytest.approx(CHANNELS[name].rho, abs=0.08)
    assert background[1].var() == pytest.approx(1.0, abs=0.15)
    assert events[1].mean() == pytest.approx(CHANNELS[name].q * events[0].mean(), abs=0.35)


def test_the_main_view_is_the_same_whether_or_not_there_is_a_scan():
    for world in WORLDS.values():
        main, scan = (make_trace(world, 2, seed=0, minutes=(1, 3), channel=see) for see in (None, Channel(rho=1, q=1)))
        assert scan.evidence_seconds == main.evidence_seconds
        assert (scan.info.n_frames, scan.info.fps) == (main.info.n_frames, main.info.fps)
        assert scan.latent == pytest.approx(main.latent, abs=1e-5)  # the same to the encoder that sees as much
        assert scan.key != main.key  # but for the noise of single frames


def test_a_channel_is_named_and_may_be_changed():
    assert channel_of("fair") == CHANNELS["fair"]
    assert channel_of("good:rho=0.4,cost=0.25") == Channel(rho=0.4, q=1.0, cost=0.25)
    with pytest.raises(UnknownName, match="good"):
        channel_of("goood")
    with pytest.raises(UnknownName, match="cost"):
        channel_of("good:costs=1")
    with pytest.raises(InvalidInput, match=r"rho in \[0, 1\]"):
        channel_of("good:rho=1.5")


def rows_of(out):
    folders = sorted((out / "selections").iterdir())
    return {folder.name.rpartition("-k4")[0]: list(StoredRows(folder, SelectionRow)) for folder in folders}


def test_rows_count_what_was_scanned_and_what_it_costs(ran):
    rows = rows_of(ran)
    assert all(row.error is None for part in rows.values() for row in part)
    assert {name for name, part in rows.items() if any(row.frames_scanned for row in part)} == {
        name for name in rows if "scan" in name or "all_frames" in name
    }
    for row in rows["smooth-scan_cover,scan_encoder=good_cost=0.5"]:
        assert row.scan_encoder == "good:cost=0.5"
        assert row.gmacs == {"image": 1.0, "scan_image": 0.5}
        assert row.scanned_frames == []
        spent = row.n_scored + 0.5 * row.frames_scanned
        assert spent == pytest.approx(0.005 * 25 * row.n_frames / row.fps, abs=3)


def test_what_questions_share_is_paid_in_part(ran):
    frame = load_run(ran).selection_frame.set_index("label").filter(regex="n_pulls|forward_equivalents")
    rows = rows_of(ran)
    for row in rows["smooth-even_cover,shared_by=3"]:
        assert row.encoded == {"main": pytest.approx(row.n_pulls / 3), "scan": 0.0}
    for row in rows["smooth-scan_cover,scan_encoder=good_cost=0.5,shared_by=2"]:
        assert row.encoded == {"main": row.n_pulls, "scan": pytest.approx(row.n_scanned / 2)}
    cost = {label: part["forward_equivalents"].mean() for label, part in frame.groupby(level=0)}
    shared = next(label for label in cost if label.startswith("even_cover shared_by=3"))
    assert cost[shared] == pytest.approx(cost[next(label for label in cost if "shared_by=1" in label)], rel=0.1)


def test_each_channel_is_a_selection_of_its_own_and_known_ahead(ran):
    ids = {row.selection_id for part in rows_of(ran).values() for row in part}
    assert len(ids) == len(CONFIG.series())
    assert ids == selection_ids(CONFIG)


def test_a_question_shown_again_is_the_row_of_the_run(ran):
    (source,) = trace_sources(CONFIG)
    sampler, k = next((s, k) for s, k in CONFIG.series() if s.options.get("scan_encoder") == "useless")
    second_row = select_on(source, CONFIG, sampler, k, 3)
    (row,) = (row for row in rows_of(ran)["smooth-scan_cover,scan_encoder=useless"] if row.question_id == "smooth-0003")
    assert second_row.keyframes == row.keyframes
    assert len(second_row.scanned_frames) == row.n_scanned


def test_an_encoder_of_real_videos_is_the_usual_channel_so_that_one_command_has_both(tmp_path):
    entry = {"sampler": "scan_cover", "options": {"scan_encoder": "offline:size=64"}}
    config = SimulationConfig(samplers=[entry, "scan_cover"], worlds=["smooth"], videos=2, minutes=(1, 2), k=[4])
    run_simulation(config, tmp_path, n_workers=1)
    named_row, unnamed = rows_of(tmp_path).values()
    assert [row.keyframes for row in named_row] == [row.keyframes for row in unnamed]
    assert {row.scan_encoder for row in named_row} == {"fair"}


def test_an_unknown_channel_ends_the_run_before_it_begins(tmp_path):
    config = SimulationConfig(samplers=[{"sampler": "scan_cover", "options": {"scan_encoder": "clipp"}}], k=[4])
    with pytest.raises(UnknownName, match="unknown scan channel 'clipp'"):
        run_simulation(config, tmp_path, n_workers=1)


def test_a_report_says_how_far_the_encoders_agree_and_warns(ran, monkeypatch):
    monkeypatch.setattr(measures, "MIN_PULLS_FOR_WARNING", 10)
    notes = recall_overview(lab_frame(load_run(ran))).notes
    assert any(note.startswith("Correlation of scan and main encoder, measured at the pulls: ") for note in notes)
    (warning,) = (note for note in notes if note.startswith("Warning: below 0.15 a scan does not find"))
    assert "for useless use a better encoder" in warning


def test_questions_with_many_pulls_count_for_more_in_the_correlation():
    frame = pd.DataFrame({"scan_encoder": "clip", "scan_rho": [0.5, 0.0, None], "n_pulls": [300, 100, 7]})
    assert scan_notes(frame) == ["Correlation of scan and main encoder, measured at the pulls: clip 0.38."]
    assert scan_notes(frame.iloc[2:]) == []
