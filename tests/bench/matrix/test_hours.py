"""Hours on a stated machine follow from its rates by hand."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.hours import (
    Machine,
    faster_precisions,
    load_machine,
    selection_costs,
    time_text,
    total_cost,
)
from focus_eval.bench.matrix.plan import SelectionPlan, load_sets, make_plan
from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError, UnknownName
from focus_eval.keyframes.samplers.registry import make_sampler

from .conftest import write_simulation

NODE = Machine(
    name="node",
    cores=16,
    gpus=2,
    decode_seconds=0.02,
    decode_seconds_gop=0.005,
    frames_per_second={"trace": {"fp32": 100.0, "tf32": 400.0}},
)


@pytest.fixture(scope="module")
def matrix_file(tmp_path_factory):
    return write_simulation(tmp_path_factory.mktemp("hours") / "simulation", n_questions=12, n_videos=4)


def costs_of(matrix, machine=NODE):
    return {selection.spec.label: cost for selection, cost in selection_costs(make_plan(matrix), machine)}


@pytest.mark.parametrize("share", [True, False])
def test_hours_are_those_of_the_slower_stage(matrix_file, share):
    matrix = load_matrix(matrix_file, overrides={"share_frames": share})
    plan = make_plan(matrix)
    for selection in plan.selections:
        if selection.spec.encoder is None:
            continue
        frames = selection.embedded_shared if share else selection.embedded_alone
        line = costs_of(matrix)[selection.spec.label]
        encode, decode = frames / 100 / 3600, frames * 0.02 / 3600
        assert line.frames == frames
        assert line.encode_hours == pytest.approx(encode)
        assert line.decode_hours == pytest.approx(decode)
        assert line.hours == pytest.approx(max(encode / 2, decode / 16))
        assert line.gpu_hours == pytest.approx(2 * line.hours)


def test_frames_to_embed_are_counted_for_each_question_and_for_each_video(matrix_file):
    matrix = load_matrix(matrix_file)
    (questions,) = load_sets(matrix).values()
    # One frame a second, by hand; three questions share a video.
    videos = [
        (len(video_questions), video_questions[0][2].n_frames // int(video_questions[0][2].fps))
        for video_questions in questions.infos()
    ]
    topk = next(item for item in make_plan(matrix).selections if item.spec.sampler == make_sampler("topk"))
    assert topk.pulls == topk.embedded_alone == sum(n_asked * frames for n_asked, frames in videos)
    assert topk.embedded_shared == sum(frames for _, frames in videos) < topk.embedded_alone


def test_a_plan_counts_scans_and_matching_in_forwards_of_the_encoder():
    spec = SimpleNamespace(encoder="blip", gmacs={"image": 200.0, "keys": 10.0, "fusion": 4.0, "scan_image": 5.0},
                            sampler=SimpleNamespace(options={}))  # fmt: skip
    plan = SelectionPlan(spec=spec, questions=3, pulls=30, frames=900, embedded_alone=30, embedded_shared=10,
                            scanned=60, scanned_shared=20)  # fmt: skip
    assert plan.forward_equivalents(shared=False) == pytest.approx(30 * 1.05 + 60 * 0.025 + 30 * 0.02)
    assert plan.forward_equivalents(shared=True) == pytest.approx(10 * 1.05 + 20 * 0.025 + 30 * 0.02)
    spec.gmacs = {}
    assert np.isnan(plan.forward_equivalents(shared=True)), "a scan of unknown cost"
    spec.sampler.options["relative_cost"] = 0.1
    assert plan.forward_equivalents(shared=True) == pytest.approx(10 + 20 * 0.1)


def test_a_faster_precision_saves_what_its_rate_says_and_a_slower_one_is_not_set(matrix_file):
    plan = make_plan(load_matrix(matrix_file))
    machine = NODE.model_copy(update={"frames_per_second": {"trace": {"fp32": 100.0, "tf32": 400.0, "fp16": 50.0}}})
    assert faster_precisions(plan, machine) == ["tf32"]
    configured, tf32, fp16 = (
        total_cost(selection_costs(plan, machine, precision=name)) for name in (None, "tf32", "fp16")
    )
    assert tf32.encode_hours == pytest.approx(configured.encode_hours / 4)
    assert (tf32.decode_hours, tf32.selections) == (configured.decode_hours, 3)
    assert fp16 == configured


def test_pulls_near_sync_frames_decode_at_their_own_rate(tmp_path):
    matrix = load_matrix(write_simulation(tmp_path / "gop", n_questions=2, n_videos=1, samplers=("focus_gop",)))
    (line,) = costs_of(matrix).values()
    assert line.decode_hours == pytest.approx(line.frames * 0.005 / 3600)


def test_the_total_is_the_sum_and_counts_a_repeated_selection_once(matrix_file):
    costs = list(selection_costs(make_plan(load_matrix(matrix_file)), NODE))
    total = total_cost(costs)
    assert total.selections == 3
    assert total.hours == pytest.approx(sum(cost.hours for _, cost in costs))
    assert total_cost([*costs, *costs]) == total


@pytest.mark.parametrize("is_measured", [True, False])
def test_the_hours_are_printed_with_where_the_rates_are_from(matrix_file, tmp_path, is_measured):
    machine = tmp_path / "node.yaml"
    rates = {"trace": {"bf16": 400, "fp32": 100, "tf32": 200}}
    stated_values = {
        "cores": 4,
        "gpus": 2,
        "decode_seconds": 0.01,
        "frames_per_second": rates,
        "is_measured": is_measured,
    }
    machine.write_text(yaml.safe_dump(stated_values))
    arguments = ["plan", str(matrix_file), "--limit", "2", "--machine", str(machine)]
    printed = " ".join(CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}).output.split())
    total = total_cost(
        selection_costs(make_plan(load_matrix(matrix_file, overrides={"limit": 2})), load_machine(machine))
    )
    assert f" as configured {total.frames} {time_text(total.encode_hours)} {time_text(total.decode_hours)} " in printed
    names = ("as configured", "bf16", "tf32")
    fp32, bf16, tf32 = (float(re.search(rf"{name} \d+ ([\d.]+) s", printed)[1]) for name in names)
    assert (fp32 / bf16, fp32 / tf32) == pytest.approx((4, 2), rel=0.02)
    assert f"Rates {'measured' if is_measured else 'estimated'}: of unknown source" in printed


def test_times_are_in_the_unit_that_suits_them():
    seconds = (0.04, 75, 3600, 9000, 90_000, 1_000_000)
    assert [time_text(n / 3600) for n in seconds] == ["0.04 s", "75 s", "60 min", "2.5 h", "25 h", "11.6 d"]


def test_a_plan_of_a_few_questions_prints_their_seconds(matrix_file, tmp_path):
    machine = tmp_path / "laptop.yaml"
    rates = {"cores": 4, "decode_seconds": 0.01, "frames_per_second": {"trace": {"fp32": 100, "tf32": 200}}}
    machine.write_text(yaml.safe_dump(rates))
    arguments = ["plan", str(matrix_file), "--limit", "2", "--machine", str(machine)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    hours = result.output[result.output.index("time to choose frames") :]
    assert re.search(r"as configured +\d+ +[\d.]+ s +[\d.]+ s +[\d.]+ s", hours)
    assert [hours.count(name) for name in ("as configured", "tf32")] == [1, 1]
    assert "0.000" not in hours


def test_without_a_gpu_encoding_and_decoding_share_the_cores(matrix_file):
    laptop = NODE.model_copy(update={"gpus": 0, "cores": 2})
    line = costs_of(load_matrix(matrix_file), laptop)["focus"]
    assert line.hours == pytest.approx(line.encode_hours + line.decode_hours / 2)
    assert line.gpu_hours == 0


@pytest.mark.parametrize(("sampler", "has_encoder"), [("uniform", False), ("focus", True)])
def test_a_plan_without_an_encoder_says_nothing_of_rates(tmp_path, sampler, has_encoder):
    matrix = write_simulation(tmp_path / sampler, n_questions=2, n_videos=1, samplers=(sampler,))
    result = CliRunner().invoke(app, ["plan", str(matrix), "--machine", "eight_h100"], env={"COLUMNS": "200"})
    assert ("eight_h100: no hours" in result.output) == has_encoder


def test_an_encoder_or_precision_without_a_rate_gets_no_hours(matrix_file):
    unknown = NODE.model_copy(update={"frames_per_second": {"trace": {"bf16": 900.0}}})
    assert costs_of(load_matrix(matrix_file), unknown) == {}


def test_machines_are_read_from_yaml_and_a_wrong_key_is_named(tmp_path):
    shipped = load_machine("eight_h100")
    assert (shipped.name, shipped.gpus) == ("eight_h100", 8)
    file = tmp_path / "laptop.yaml"
    file.write_text(yaml.safe_dump({"cores": 2, "decode_seconds": 0.01, "gpu": 1}))
    with pytest.raises(FocusEvalError, match=r"laptop.yaml.*gpu"):
        load_machine(file)


def test_a_misspelt_machine_is_told_with_the_nearest_name():
    with pytest.raises(UnknownName, match="unknown machine 'eigth_h100'; did you mean 'eight_h100'"):
        load_machine("eigth_h100")


def test_the_hours_are_those_of_a_whole_worker_where_it_was_measured(matrix_file):
    """A worker with a slower encoder is no faster than the one measured; of a faster encoder nothing is known."""
    node = NODE.model_copy(update={"worker_frames_per_second": {"trace": {"tf32": 40.0}}, "cores": 10_000})
    node.frames_per_second["trace"]["bf16"] = 900.0
    plan = make_plan(load_matrix(matrix_file))
    total = {name: total_cost(selection_costs(plan, node, precision=name)) for name in (None, "tf32")}
    assert {name: cost.hours for name, cost in total.items()} == pytest.approx(
        {name: cost.frames / 40.0 / 3600 / 2 for name, cost in total.items()}
    )
    assert faster_precisions(plan, node) == ["tf32"]


def test_the_h200_is_planned_with_the_slower_of_its_measured_workers():
    with (Path(__file__).parents[3] / "results/measured/h200.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    frames, seconds = (
        {row["what"]: float(row["value"]) for row in rows if row["unit"] == unit and row["what"].startswith("focus,")}
        for unit in ("frames", "s")
    )
    slowest = min(frames[what] / seconds[what] for what in frames)
    assert load_machine("h200").worker_frames_per_second == {"blip": {"tf32": pytest.approx(slowest, abs=0.05)}}


def test_a_time_that_is_not_known_is_said_to_be_so():
    printed = CliRunner().invoke(app, ["plan", "alpha", "--machine", "h200"], env={"COLUMNS": "300"}).output
    assert "time in all not known, of choosing frames at least" in printed
    assert "of answering not known." in printed
    assert "0 s" not in printed
