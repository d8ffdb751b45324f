"""Rates of rows replace stated ones of the same kind of device, and the device's seconds add up to its clock."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from focus_eval.bench.commands.runs import print_rates
from focus_eval.bench.matrix.config import EncoderConfig, SamplerConfig
from focus_eval.bench.matrix.hours import (
    EncoderRate,
    Machine,
    MeasuredRates,
    answer_lines,
    load_machine,
    measured_rates,
)
from focus_eval.bench.report.measures import _hours_table
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import name_run
from focus_eval.cli import app
from focus_eval.keyframes.encoders.dual_encoder import ClipScorer
from focus_eval.keyframes.rows.files import write_sealed_json
from tests.support.bench.matrix_rows import run_matrix
from tests.support.keyframes.random_weights import write_tiny_clip

from .test_videos_at_once import matrix  # noqa: F401 (a fixture)

BLIP = EncoderConfig(name="blip", encoder="blip", options={"precision": "bf16"})


def rate_on(device, **figures):
    measured = {"n_forwards": 2000, "device_seconds": 4.0, "held_seconds": 5.0, **figures}
    return EncoderRate(encoder=BLIP, device=device, **measured)


@pytest.fixture(scope="module")
def clocked_run(matrix, tmp_path_factory):  # noqa: F811
    """Run two samplers with a tiny CLIP; return the folder and the seconds of the encoder's clock at the end."""
    folder = tmp_path_factory.mktemp("clocked")
    checkpoint = write_tiny_clip(folder / "clip")
    encoder = EncoderConfig(name="tiny", encoder="clip", options={"checkpoint": str(checkpoint), "device": "cpu"})
    samplers = [SamplerConfig(sampler=name) for name in ("uniform", "topk", "focus")]
    update = {"encoders": [encoder], "samplers": samplers}
    clocks = []
    with pytest.MonkeyPatch.context() as patch:
        close = ClipScorer.close
        patch.setattr(ClipScorer, "close", lambda scorer: (clocks.append(scorer.device_seconds), close(scorer))[1])
        run_matrix(matrix.model_copy(update=update), out=folder / "run", store=None)
    return folder / "run", max(clocks)


def test_seconds_of_the_device_in_rows_add_up_to_the_encoders_clock(clocked_run):
    folder, clock_seconds = clocked_run
    frame = load_run(folder).selection_frame
    assert frame["seconds_device"].sum() == pytest.approx(clock_seconds, rel=1e-3)
    assert (frame.loc[frame["sampler"] == "uniform", "seconds_device"] == 0).all()
    busy = frame["seconds_device"].sum() / frame.loc[frame["seconds_device"] > 0, "select_seconds"].sum()
    assert f"computing {busy:.0%} of the time it was held" in _hours_table(frame).notes[0]


def test_rates_of_rows_are_forwards_by_the_devices_seconds(clocked_run):
    folder, clock_seconds = clocked_run
    (rate,) = measured_rates(folder).encoders
    frame = load_run(folder).selection_frame
    assert rate.n_forwards == frame["forwards"].sum() > 0
    assert rate.frames_per_second == pytest.approx(rate.n_forwards / clock_seconds, rel=1e-3)
    assert rate.held_seconds > rate.device_seconds


def test_plan_takes_the_rates_of_rows_and_says_how_far_off_the_stated_ones_were(clocked_run):
    folder, _ = clocked_run
    (rate,) = measured_rates(folder).encoders
    machine = Machine(name="here", cores=2, decode_seconds=0.01, frames_per_second={"tiny": {"fp32": 1.0, "bf16": 9.0}})
    replaced = MeasuredRates([rate]).applied_to(machine, folder)
    assert replaced.frames_per_second == {"tiny": {"fp32": rate.frames_per_second}}
    (line,) = MeasuredRates([rate]).lines(machine)
    assert f"planned at 1 (here, estimated): encoding took {1 / rate.frames_per_second:.0%} of the planned time" in line


def test_rates_of_another_device_replace_nothing():
    node = load_machine("eight_h100")
    others = MeasuredRates([rate_on("cpu: AMD EPYC"), rate_on("cuda: NVIDIA A100")])
    assert others.applied_to(node, None) == node
    faster = MeasuredRates([rate_on("cuda: NVIDIA H100 80GB HBM3")]).applied_to(node, "results/runs/alpha")
    assert faster.rate_of(BLIP) == 500.0
    assert "blip measured in the rows of results/runs/alpha" in faster.source


def test_plan_takes_the_decoding_of_rows_and_says_how_far_off_it_was(clocked_run):
    folder, _ = clocked_run
    (decoding,) = measured_rates(folder).decoding
    rows = [row for row in load_run(folder).selections if row.encoder]
    assert decoding.n_frames == sum(row.forwards for row in rows) > 0
    assert decoding.core_seconds == pytest.approx(sum(row.seconds["decode_cpu"] for row in rows))
    machine = Machine(name="here", cores=2, decode_seconds=2 * decoding.seconds_per_frame)
    near_sync = replace(decoding, near_sync=True, core_seconds=3 * decoding.core_seconds)
    both = MeasuredRates(decoding=[decoding, near_sync])
    replaced = both.applied_to(machine, folder)
    assert replaced.decode_seconds == decoding.seconds_per_frame
    assert replaced.decode_seconds_gop == pytest.approx(3 * decoding.seconds_per_frame)
    line, line_near_sync = both.lines(machine)
    assert f"{decoding.n_frames:,} frames at {1000 * decoding.seconds_per_frame:.1f} ms of a core" in line
    assert "(here, estimated): decoding took 50% of the planned time" in line
    assert "near sync frames" in line_near_sync
    assert "decoding took 150% of the planned time" in line_near_sync
    node = load_machine("eight_h100")
    assert both.applied_to(node, folder) == node
    assert "planned" not in both.lines(None)[0]  # no shipped machine has this device


def test_rates_leave_out_rows_that_scan_with_a_second_encoder_and_decoding_counts_frames_looked_at(
    tmp_path, monkeypatch
):
    write_sealed_json(tmp_path / "run.json", {"name": "run", "matrix": {"name": "made"}})
    row = SimpleNamespace(
        device="cpu", sampler="focus", forwards=10, looked_frames=[1, 2, 3], seconds={"device": 2.0, "decode_cpu": 6.5}
    )
    stored = SimpleNamespace(without=lambda *_: [row])
    specs = [SimpleNamespace(encoder=BLIP, scan_encoder=scan_encoder) for scan_encoder in (None, BLIP)]
    monkeypatch.setattr("focus_eval.bench.matrix.hours.matrix_of_run", lambda _: None)
    monkeypatch.setattr("focus_eval.bench.matrix.hours.cells", lambda _: [])
    monkeypatch.setattr("focus_eval.bench.matrix.hours.selection_specs", lambda _: specs)
    monkeypatch.setattr("focus_eval.bench.matrix.hours.RunFolder.selections", lambda *_: stored)
    measured = measured_rates(tmp_path)
    (rate,), (decoding,) = measured.encoders, measured.decoding
    assert (rate.n_forwards, rate.device_seconds) == (10, 2.0)
    assert (decoding.n_frames, decoding.core_seconds) == (10 + 3, 6.5)


@pytest.mark.usefixtures("unsaved_figures")
def test_report_compares_rows_of_a_known_gpu_with_its_shipped_rates(clocked_run, monkeypatch):
    folder, _ = clocked_run
    rates = [rate_on("cuda: NVIDIA H100 80GB HBM3"), rate_on("cpu: AMD EPYC")]
    monkeypatch.setattr("focus_eval.bench.matrix.hours.measured_rates", lambda *_: MeasuredRates(rates))
    result = CliRunner().invoke(app, ["report", str(folder), "--no-html"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    on_h100, on_cpu = (line for line in result.output.splitlines() if line.startswith("blip, bf16"))
    assert (
        "2,000 frames at 500 a second on cuda: NVIDIA H100 80GB HBM3, busy 80% of the time that it was held" in on_h100
    )
    assert "planned at 1,080 (eight_h100, estimated): encoding took 216% of the planned time" in on_h100
    assert "planned" not in on_cpu


def test_plan_scales_answering_by_the_seconds_of_rows_on_its_device(clocked_run, monkeypatch):
    h100, model = "cuda: NVIDIA H100 80GB HBM3", SimpleNamespace(name="llava_video_7b")
    cell = SimpleNamespace(model=model, selection=SimpleNamespace(k=64), benchmark=SimpleNamespace(name="b"))
    rows = [
        SimpleNamespace(error=error, device=device, seconds={"generate": seconds})
        for error, device, seconds in [(None, h100, 1.0), (None, h100, 2.0), ("failed", h100, 9.0), (None, "cpu", 7.0)]
    ]
    monkeypatch.setattr("focus_eval.bench.matrix.hours.cells", lambda _: [cell])
    stored = SimpleNamespace(without=lambda *_: rows)
    monkeypatch.setattr("focus_eval.bench.matrix.hours.RunFolder.answers", lambda *_: stored)
    node = load_machine("eight_h100")
    for machine in (node, None):
        (answers,) = measured_rates(clocked_run[0], machine).answers
        assert (answers.device, answers.n_answers, answers.generate_seconds) == (h100, 2, 3.0)
    plan = SimpleNamespace(matrix=SimpleNamespace(models=[model]), questions={"b": (8, 8)}, cells=[cell])
    (stated,), (scaled,) = (
        answer_lines(plan, each) for each in (node, MeasuredRates(answers=[answers]).applied_to(node, None))
    )
    assert scaled.hours == pytest.approx(8 * 1.5 / 8 / 3600)
    (line,) = MeasuredRates(answers=[answers]).lines(None)
    assert f"2 answers at 1.50 s on {h100}; answering took {scaled.hours / stated.hours:.0%} of the time" in line
    assert measured_rates(clocked_run[0], node.model_copy(update={"gpu": "A100"})).answers == []


def test_an_imported_run_has_no_rates_and_a_matrix_of_another_version_is_named(tmp_path, capsys):
    name_run(tmp_path)
    assert measured_rates(tmp_path) == MeasuredRates()
    (tmp_path / "run.json").unlink()
    write_sealed_json(tmp_path / "run.json", {"name": "old", "matrix": {"gone": 1}})
    node = load_machine("eight_h100")
    assert print_rates(tmp_path, node) is node
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("rates not compared: ")
    assert "does not describe a run of this version" in printed
