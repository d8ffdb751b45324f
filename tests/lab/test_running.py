"""Are the rows of a simulation those of a real run: complete, the same for any number of workers, resumed?"""

from __future__ import annotations

import gc
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.bench.report.recall import recall_within
from focus_eval.bench.report.recall_layouts import differences_by_length, lab_frame
from focus_eval.bench.report.rendering import to_markdown
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import StoredRows
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import SelectionRow, values_of
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.samplers.topk import TopK
from focus_eval.lab import simulation as running
from focus_eval.lab.commands.compare_samplers import _controls, _frame, simulation_sections
from focus_eval.lab.overview import off_grid_lines, recall_overview
from focus_eval.lab.recorded import recorded_traces
from focus_eval.lab.simulation import SimulationConfig, run_simulation, select_on, selection_ids, trace_sources

CONFIG = SimulationConfig(
    videos=12,
    minutes=(1, 30),
    worlds=["calibrated", "flashes"],
    samplers=["uniform", "oracle", "topk", "focus", {"sampler": "even_cover", "budgets": True}],
    k=[4, 8],
    budgets=[1.0],
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulation")
    run_simulation(CONFIG, out, n_workers=2)
    return out


def parts(folder):
    """Bytes of what depends on the configuration alone, by part."""
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("selections/*/rows.parquet"))}


def test_ctrl_c_begins_no_further_videos(tmp_path, monkeypatch):
    begun, may_go_on = [], threading.Event()

    class Threads(ThreadPoolExecutor):
        """A pool whose second job ends only once the pool was told to shut down."""

        def __init__(self, n_workers, mp_context, initializer):
            super().__init__(n_workers)

        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            may_go_on.set()
            super().shutdown(wait=wait)

    def run_chunk(source, config, finished, numbers):
        if begun:
            may_go_on.wait()
        begun.append(numbers)
        return set()

    def interrupted(n_done, of):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(running, "_run_chunk", run_chunk)
    monkeypatch.setattr(running, "VIDEOS_AT_ONCE", 1)
    with pytest.raises(KeyboardInterrupt):
        run_simulation(CONFIG, tmp_path, n_workers=1, progress=interrupted)
    assert len(begun) <= 2


RUN_CHUNK = running._run_chunk


def run_chunk_after_collecting(*arguments):
    """Collect garbage in the worker, as Python does at some moment of every job, and run the job."""
    gc.collect()
    return RUN_CHUNK(*arguments)


def test_what_is_garbage_at_the_start_never_ends_in_a_worker(tmp_path, monkeypatch):
    class Collected:
        """An object that only the garbage collector ends; its end is told by a file named after the process."""

        def __init__(self):
            self.itself = self

        def __del__(self):
            (tmp_path / f"{os.getpid()}.pid").touch()

    monkeypatch.setattr(running, "_run_chunk", run_chunk_after_collecting)
    gc.disable()
    try:
        Collected()
        run_simulation(CONFIG.model_copy(update={"videos": 2}), tmp_path / "run", n_workers=2)
    finally:
        gc.enable()
    gc.collect()
    assert [path.stem for path in tmp_path.glob("*.pid")] == [str(os.getpid())]


def test_every_sampler_has_a_row_for_every_video_world_and_k(ran):
    run = load_run(ran)
    assert len(run.selections) == 2 * 12 * 2 * 6
    assert not [row.error for row in run.selections if row.error]
    assert {row.benchmark for row in run.selections} == {"calibrated", "flashes"}


def test_one_worker_or_two_killed_or_not_give_the_same_bytes(ran, tmp_path):
    run_simulation(CONFIG, tmp_path, limit=5, n_workers=1)
    first = next(tmp_path.glob("selections/*"))
    (first / "rows.parquet").unlink()
    (first / "costs.parquet").unlink()  # as if killed before this part was done
    run_simulation(CONFIG, tmp_path, n_workers=1)
    assert parts(tmp_path) == parts(ran)


def test_a_second_run_does_nothing_again(ran):
    times_before = {path: path.stat().st_mtime_ns for path in ran.glob("selections/*/*.parquet")}
    run_simulation(CONFIG, ran)
    assert {path: path.stat().st_mtime_ns for path in ran.glob("selections/*/*.parquet")} == times_before


def test_another_seed_needs_another_folder(ran):
    with pytest.raises(InvalidInput, match="another value of 'seed'; name another folder"):
        run_simulation(CONFIG.model_copy(update={"seed": 7}), ran)


def test_a_damaged_description_of_a_simulation_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"run\.json:1: not JSON"):
        run_simulation(CONFIG, tmp_path, n_workers=1)


def test_a_smaller_limit_keeps_the_rows_of_a_larger_one(tmp_path):
    small = CONFIG.model_copy(update={"worlds": ["calibrated"], "samplers": ["uniform"], "k": [4], "budgets": []})
    run_simulation(small, tmp_path, limit=5, n_workers=1)
    rows = list(load_run(tmp_path).selections)
    (part,) = tmp_path.glob("selections/*")
    for file in part.glob("*.parquet"):
        file.unlink()
    with closing(RowWriter(part / "rows-000003.jsonl")) as writer:  # as if a kill had left the last two
        for row in rows[3:]:
            writer.write(row)
    run_simulation(small, tmp_path, limit=2, n_workers=1)
    kept = [row.question_id for row in load_run(tmp_path).selections]
    assert kept == [rows[number].question_id for number in (0, 1, 3, 4)]


@pytest.mark.parametrize("samplers", [["uniform"], [{"sampler": "focus", "options": {"alpha": 0.5}}]])
def test_a_baseline_that_is_not_simulated_is_refused_before_anything_runs(tmp_path, samplers):
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"name": "mine", "videos": 1, "k": [8], "samplers": samplers}))
    result = CliRunner().invoke(app, ["simulate", str(file), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, InvalidInput)
    assert "the baseline 'focus' is not among the samplers" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_what_may_choose_no_frame_is_said_before_the_run(tmp_path, monkeypatch):
    file = tmp_path / "mine.yaml"
    config = {"name": "mine", "videos": 5, "k": [8, 32], "samplers": ["aks", "uniform"], "baseline": "uniform"}
    file.write_text(json.dumps(config))

    def stop(*_args, **_kwargs):
        raise RunError("stopped before the first row")

    monkeypatch.setattr(running, "run_simulation", stop)
    result = CliRunner().invoke(app, ["simulate", str(file), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, RunError)
    lines = " ".join(result.output.split())
    assert "aks, K = 8, calibrated: 5 of 5 questions may end without frames, which counts as recall 0: " in lines
    assert "set max_depth=3 or less, or k=32 or more" in lines
    assert lines.count("may end without frames") == 1


def test_the_length_of_a_video_is_that_of_its_trace():
    for source in trace_sources(CONFIG):
        for number in range(3):
            video, trace = source.video(number, CONFIG), source.trace(number, CONFIG)
            assert (video.n_frames, video.fps) == (trace.info.n_frames, trace.info.fps)


def test_a_printed_recall_is_the_mean_of_the_rows(ran):
    rows = [row for row in load_run(ran).selections if row.sampler == "topk" and row.k == 8]
    rows = [row for row in rows if row.benchmark == "flashes"]
    by_hand = np.mean([recall_within(np.array(row.evidence_seconds), row.times_seconds, [2.0])[0] for row in rows])
    table = recall_overview(lab_frame(load_run(ran)))
    printed = next(row for row in table.rows if row.keys == ("flashes", "8", "topk"))
    figures = dict(zip(table.columns, printed.figures, strict=True))
    assert figures["2 s"].ours == pytest.approx(100 * by_hand)
    cost = 100 * sum(row.n_scored for row in rows) / sum(row.n_frames for row in rows)
    assert figures["frames scored (%)"].ours == pytest.approx(cost)
    assert figures["near frames"].ours == pytest.approx(np.mean([near_frames_of(row) for row in rows]))


def near_frames_of(row):
    """Mean over the row's moments of log(1 + keyframes within five seconds)."""
    return np.mean([np.log1p(sum(abs(t - moment) <= 5 for t in row.times_seconds)) for moment in row.evidence_seconds])


def test_the_oracle_finds_everything_and_uniform_pulls_nothing(ran):
    for row in load_run(ran).selections:
        if row.sampler == "oracle":
            assert recall_within(np.array(row.evidence_seconds), row.times_seconds, [1.0])[0] == 1.0
        if row.sampler in ("oracle", "uniform"):
            assert row.n_scored == 0


@pytest.mark.slow
def test_a_row_without_its_pulls_is_the_row_with_them(ran):
    source = trace_sources(CONFIG)[0]
    for sampler, k in CONFIG.series():
        full = select_on(source, CONFIG, sampler, k, 3)
        rows = [row for row in load_run(ran).selections if row.selection_id == full.selection_id]
        row = next(row for row in rows if row.question_id == full.question_id)
        assert row.keyframes == full.keyframes
        assert row.n_scored == len(full.pulled_frames)
        assert row.pulled_frames == []


def test_differences_are_paired_with_the_baseline_by_length(ran):
    frame = lab_frame(load_run(ran))
    table = differences_by_length(frame, "focus")
    assert {row.keys[2] for row in table.rows} == set(frame["label"]) - {"focus"}
    with pytest.raises(InvalidInput, match="the baseline 'mdp3' is none of"):
        differences_by_length(frame, "mdp3")


def test_rows_of_an_older_state_of_a_sampler_are_never_pooled_with_those_of_now(tmp_path, monkeypatch):
    config = SimulationConfig(
        videos=6, minutes=(1, 2), worlds=["calibrated"], samplers=["uniform", "topk"], k=[8], baseline="uniform"
    )
    run_simulation(config, tmp_path, n_workers=1)
    monkeypatch.setattr(TopK, "version", TopK.version + 1)  # as an edit of a sampler's file: another selection id
    run_simulation(config, tmp_path, n_workers=1)
    run = load_run(tmp_path)
    labels = sorted(set(lab_frame(run)["label"]))
    assert [label.partition(" #")[0] for label in labels] == ["topk", "topk", "uniform"]
    with pytest.raises(InvalidInput, match="several versions of the baseline 'topk'; name another folder with --out"):
        differences_by_length(lab_frame(run), "topk")
    now = lab_frame(run, only=selection_ids(config))
    assert sorted(now["label"]) == ["topk"] * 6 + ["uniform"] * 6
    config = config.model_copy(update={"samplers": ["topk", "uniform"]})
    title, (first, verdict, *_) = simulation_sections(config, now, now, share=1.0, margin=3.0)[0]
    assert title == "Verdict in the world 'calibrated', 6 videos"
    assert first.startswith("topk ")
    assert verdict.startswith("K = 8, topk against uniform: ")


def test_a_sampler_that_fails_leaves_an_error_and_the_run_goes_on(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from focus_eval.keyframes.samplers.base import Choice, FrameSampler\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(FrameSampler):\n"
        "    name: ClassVar[str] = 'mine'\n    source: ClassVar[str] = 'test'\n\n"
        "    def choose(self, request):\n"
        "        if request.video.duration_seconds > 300:\n            raise ValueError('too long')\n"
        "        return Choice(keyframes=request.rng.choice(request.video.n_frames, request.n_wanted, replace=False))\n"
    )
    config = CONFIG.model_copy(update={"samplers": [f"{tmp_path}/mine.py:Mine"], "worlds": ["smooth"], "budgets": []})
    run_simulation(config, tmp_path / "out")
    rows = load_run(tmp_path / "out").selections
    failed = [row for row in rows if row.error]
    assert {row.error for row in failed} == {"ValueError: too long (mine.py:13)"}
    assert {row.question_id for row in failed} == {row.question_id for row in rows if row.duration_seconds > 300}
    assert 0 < len(failed) < len(rows)
    frame = lab_frame(load_run(tmp_path / "out"))
    note = f"mine failed, first on {failed[0].question_id} at K = {failed[0].k}: {failed[0].error}."
    assert note in recall_overview(frame).notes
    of_failed_alone = recall_overview(frame[frame["error"].notna()])
    assert all("nan" not in line for line in to_markdown(of_failed_alone).split())


def test_recorded_relevance_of_a_run_is_a_source_too(tmp_path, ran):
    source, config = trace_sources(CONFIG)[0], CONFIG
    dense = make_sampler("topk", every_seconds=0.5)
    folder = tmp_path / "run" / "selections" / "dense"
    folder.mkdir(parents=True)
    rows = [select_on(source, config, dense, 8, number) for number in range(4)]
    (folder / "rows-a.jsonl").write_text("".join(json.dumps(values_of(row)) + "\n" for row in rows))
    traces = recorded_traces(tmp_path / "run")
    assert [trace.question_id for trace in traces] == [row.question_id for row in rows]
    pulled = np.array(rows[0].pulled_frames)
    assert traces[0].relevance(pulled).tolist() == rows[0].pulled_relevance
    recorded = config.model_copy(update={"recorded": str(tmp_path / "run"), "samplers": ["focus", "even_diverse"]})
    run_simulation(recorded, tmp_path / "out")
    assert {row.question_id for part in (tmp_path / "out" / "selections").iterdir()
            for row in StoredRows(part, SelectionRow)} == {row.question_id for row in rows}  # fmt: skip


def recorded_run(folder, name="dense", *, every_seconds=0.5, world="calibrated"):
    """Write a run with recorded relevance of the first four videos of a world, which share one set of ids."""
    config = CONFIG.model_copy(update={"worlds": [world]})
    part = folder / "selections" / name
    part.mkdir(parents=True)
    dense = make_sampler("topk", every_seconds=every_seconds)
    rows = [select_on(trace_sources(config)[0], config, dense, 8, number) for number in range(4)]
    lines = [json.dumps({**values_of(row), "question_id": f"q-{at}"}) for at, row in enumerate(rows)]
    (part / "rows-a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_pulls_between_recorded_frames_take_the_nearest_and_are_counted(tmp_path):
    samplers = ["focus", "topk", "maxinfo", "qframe", "wfs_sb", "focus_gop"]
    recorded = {"recorded": str(recorded_run(tmp_path / "run")), "samplers": samplers, "k": [8], "budgets": []}
    config = CONFIG.model_copy(update=recorded)
    run_simulation(config, tmp_path / "out", n_workers=1)
    [source], run = trace_sources(config), load_run(tmp_path / "out")
    frames_by_question = {trace.question_id: trace.frames for trace in source.traces}
    off = dict.fromkeys(samplers, 0)
    assert not [row.error for row in run.selections if row.error]
    for row in run.selections:
        sampler = make_sampler(row.sampler)
        full = select_on(source, config, sampler, 8, source.number(row.question_id))
        n_off = int(np.isin(full.pulled_frames, frames_by_question[row.question_id], invert=True).sum())
        assert row.facts.get("pulls_off_grid", 0) == n_off
        off[row.sampler] += n_off
    assert min(off.values()) > 0
    [line] = off_grid_lines(run)
    pulls = sum(row.n_scored for row in run.selections if row.sampler == "focus")
    assert f"focus {off['focus']:,} of {pulls:,}" in line


def test_a_recorded_scan_is_what_scan_cover_scans(tmp_path):
    main, scan = recorded_run(tmp_path / "main"), recorded_run(tmp_path / "scan", world="flashes")
    changes = {"recorded": str(main), "samplers": ["scan_cover"], "k": [8], "budgets": []}
    without_scan = CONFIG.model_copy(update=changes)
    row = select_on(trace_sources(without_scan)[0], without_scan, make_sampler("scan_cover"), 8, 0)
    assert "no scan was recorded; name one" in row.error
    config = CONFIG.model_copy(update={**changes, "scan_recorded": str(scan)})
    row = select_on(trace_sources(config)[0], config, make_sampler("scan_cover"), 8, 0)
    assert row.error is None
    grid = recorded_traces(scan)[0].frames
    n_off = int(np.isin(row.scanned_frames, grid, invert=True).sum())
    assert 0 < n_off < row.frames_scanned
    assert row.facts["scans_off_grid"] == n_off
    other_scan = CONFIG.model_copy(update={**changes, "scan_recorded": str(main)})
    assert trace_sources(other_scan)[0].revision != trace_sources(config)[0].revision


def test_a_scan_that_lacks_a_question_is_refused(tmp_path):
    main, scan = recorded_run(tmp_path / "main"), recorded_run(tmp_path / "scan")
    [file] = scan.glob("selections/*/rows-a.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    config = CONFIG.model_copy(update={"recorded": str(main), "scan_recorded": str(scan)})
    with pytest.raises(InvalidInput, match="nothing recorded for 1 questions, the first: q-0"):
        trace_sources(config)


@pytest.mark.slow
def test_compare_samplers_replays_relevance_and_says_so(tmp_path):
    folder = recorded_run(tmp_path / "run")
    command = ["compare-samplers", "even_cover", "topk", "--relevance", str(folder)]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    line = "Pulls between recorded frames, which took the relevance of the nearest: even_cover"
    assert line in " ".join(result.output.split())
    assert "Verdict on recorded calibrated, 4 questions" in (tmp_path / "out" / "compare.html").read_text()
    lone = CliRunner().invoke(app, ["compare-samplers", "even_cover", "topk", "--scan-relevance", str(folder)])
    assert lone.exit_code == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"encoder": "blip"}, {"encoder": "clip"}], "relevance of several encoders .blip .*, clip .*; narrow the run"),
        ([{"error": "ValueError: too long"}], "no rows with scored frames and evidence"),
    ],
)
def test_relevance_of_several_encoders_or_of_failed_questions_is_no_source(tmp_path, changes, message):
    row = select_on(trace_sources(CONFIG)[0], CONFIG, make_sampler("topk", every_seconds=0.5), 8, 0)
    for number, changed in enumerate(changes):
        folder = tmp_path / "selections" / str(number)
        folder.mkdir(parents=True)
        (folder / "rows-a.jsonl").write_text(json.dumps({**values_of(row), **changed}) + "\n")
    with pytest.raises(InvalidInput, match=message):
        recorded_traces(tmp_path)


def test_relevance_of_several_queries_is_no_source(tmp_path):
    row = select_on(trace_sources(CONFIG)[0], CONFIG, make_sampler("topk", every_seconds=0.5), 8, 0)
    for query in ("the question", "the question and its options"):
        folder = tmp_path / "selections" / query.replace(" ", "_")
        folder.mkdir(parents=True)
        (folder / "rows-a.jsonl").write_text(json.dumps({**values_of(row), "query": query}) + "\n")
    with pytest.raises(InvalidInput, match="was scored for several queries; narrow the run to one"):
        recorded_traces(tmp_path)


def test_a_run_that_scored_too_little_is_no_source(tmp_path):
    source = trace_sources(CONFIG)[0]
    focus = CONFIG.model_copy(update={"samplers": ["focus"], "budgets": []}).series()[0][0]
    folder = tmp_path / "selections" / "focus"
    folder.mkdir(parents=True)
    row = select_on(source, CONFIG, focus, 8, 0)
    (folder / "rows-a.jsonl").write_text(json.dumps(values_of(row)) + "\n")
    with pytest.raises(InvalidInput, match="needs one a second"):
        recorded_traces(tmp_path)


def test_questions_of_a_recorded_video_share_its_frames_and_say_their_shares(tmp_path):
    file = recorded_run(tmp_path / "run") / "selections" / "dense" / "rows-a.jsonl"
    first, *other_lines = [json.loads(line) for line in file.read_text().splitlines()]
    repeated = {**first, "question_id": "q-again", "pulled_relevance": first["pulled_relevance"][::-1]}
    file.write_text("".join(json.dumps(row) + "\n" for row in (first, *other_lines, repeated)))
    changes = {"recorded": str(tmp_path / "run"), "samplers": ["even_cover", "focus"], "k": [8], "budgets": []}
    config = CONFIG.model_copy(update=changes)
    run_simulation(config, tmp_path / "out")
    run, source = load_run(tmp_path / "out"), trace_sources(config)[0]
    for row in run.selections:
        full_rows = [select_on(source, config, make_sampler(row.sampler), 8, source.number(question_id))
                for question_id in ("q-0", "q-again")]  # fmt: skip
        frame_sets = [set(full.pulled_frames) for full in full_rows]
        shares = {full.question_id: sum(1 / sum(f in a for a in frame_sets) for f in frames)
                  for full, frames in zip(full_rows, frame_sets, strict=True)}  # fmt: skip
        assert row.pulled_frames == []
        assert row.encoded["main"] == pytest.approx(shares.get(row.question_id, row.n_pulls), abs=1e-5)
    for sampler, part in run.selection_frame.groupby("sampler"):
        pair = part[part["question_id"].isin(["q-0", "q-again"])]
        share = pair["n_encoded"].sum() / pair["n_pulls"].sum()
        assert share == 0.5 if sampler == "even_cover" else 0.5 < share < 1


def test_controls_cost_as_much_as_the_new_sampler_where_questions_share_frames(tmp_path):
    file = recorded_run(tmp_path / "run") / "selections" / "dense" / "rows-a.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines += [{**row, "question_id": f"{row['question_id']}-{at}"} for row in lines for at in range(4)]
    lines = [{**row, "pulled_relevance": row["pulled_relevance"][::-1] if at % 2 else row["pulled_relevance"]}
             for at, row in enumerate(lines)]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in lines))
    changes = {"recorded": str(tmp_path / "run"), "samplers": ["focus"], "k": [8], "budgets": []}
    config = CONFIG.model_copy(update=changes)
    run_simulation(config, tmp_path / "out")
    controls = _controls(config, lab_frame(load_run(tmp_path / "out")))
    run_simulation(config.model_copy(update={"samplers": ["focus", *controls]}), tmp_path / "out")
    costs = lab_frame(load_run(tmp_path / "out")).groupby("sampler")["forward_equivalents"].sum()
    assert {*costs.index} == {"focus", "even_diverse", "even_cover", "topk"}
    assert costs.to_numpy() == pytest.approx(costs["focus"], rel=0.05)


def test_a_verdict_on_recorded_relevance_is_on_questions_that_every_sampler_has(tmp_path):
    changes = {"recorded": str(recorded_run(tmp_path / "run")), "samplers": ["focus"], "k": [8], "budgets": []}
    config = CONFIG.model_copy(update=changes)
    run_simulation(config, tmp_path / "out")
    assert len(_frame(config, tmp_path / "out")) == 4
    config = config.model_copy(update={"samplers": ["focus", "topk"]})
    run_simulation(config, tmp_path / "out", limit=3)
    frame = _frame(config, tmp_path / "out")
    assert frame.groupby("sampler")["question_id"].nunique().to_dict() == {"focus": 3, "topk": 3}
    assert frame.attrs["n_left_out"] == 1


def test_a_limit_takes_whole_videos_since_their_questions_share_frames(tmp_path):
    config = CONFIG.model_copy(update={"recorded": str(recorded_run(tmp_path / "run"))})
    [source] = trace_sources(config)
    traces = [replace(trace, video="one.mp4") if at in (0, 2) else trace for at, trace in enumerate(source.traces)]
    source = replace(source, traces=tuple(traces))
    assert list(source.numbers(config, 1)) == [0, 2]
    assert list(source.numbers(config, None)) == [0, 1, 2, 3]
