"""Matrix files: strict, expanded, named, narrowed."""

from __future__ import annotations

import time

import pytest
import yaml

from focus_eval.bench.matrix.cells import cells, narrow, selection_specs
from focus_eval.bench.matrix.config import NO_MATRICES, SamplerConfig, load_matrix
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.core.resources import resource_path


def written(tmp_path, text):
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    return path


GOOD = """
benchmarks: [longvideobench]
encoders: [blip]
samplers:
  - uniform
  - sampler: focus
    options: {alpha: [0.1, 0.25]}
k: [8, 16]
seeds: [0, 1]
"""


def all_matrices():
    files = sorted(resource_path("configs").glob("*/*.yaml")) + sorted(resource_path("configs").glob("*.yaml"))
    return [file for file in files if file.name not in NO_MATRICES]


@pytest.mark.parametrize(
    "path",
    [path for path in all_matrices() if path.parent.name in ("paper", "ablations", "configs")],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_every_shipped_matrix_loads_and_has_cells_or_selections(path):
    matrix = load_matrix(path)
    specs = selection_specs(matrix)
    assert specs
    assert len(cells(matrix)) >= len(matrix.models)


def test_a_yaml_file_with_a_key_of_megabytes_is_refused_before_it_is_parsed(tmp_path):
    path = written(tmp_path, f"? {'k' * 10_000_000}\n: 1\n")
    start = time.perf_counter()
    with pytest.raises(InvalidInput, match="10,000,007 characters; no YAML file here needs more than"):
        load_matrix(path)
    assert time.perf_counter() - start < 5


def test_every_table_of_the_protocol_has_a_matrix():
    names = {path.stem for path in (resource_path("configs") / "paper").glob("*.yaml")}
    assert names == {
        "main_results", "by_length", "efficiency", "alpha", "full_comparison", "more_benchmarks", "two_stage",
        "bernstein", "clip_length", "encoder", "reference_models",
    }  # fmt: skip


def test_lists_expand_to_all_combinations_once(tmp_path):
    specs = selection_specs(load_matrix(written(tmp_path, GOOD)))
    # Two K; uniform draws nothing and is run under the first seed only.
    assert len(specs) == 1 * 2 + 2 * 2 * 2
    assert len({spec.name for spec in specs}) == len(specs)
    assert {spec.label for spec in specs} == {"uniform", "focus,alpha=0.1", "focus"}


def test_options_that_are_off_by_default_name_the_lines_that_have_them(tmp_path):
    matrix = load_matrix(written(tmp_path, GOOD)).model_copy(
        update={
            "samplers": [SamplerConfig(sampler="uniform", options={"snap_seconds": [0, 1], "fill": [None, "even"]})]
        }
    )
    assert {spec.label for spec in selection_specs(matrix)} == {
        "uniform", "uniform,fill=even", "uniform,snap_seconds=1.0", "uniform,snap_seconds=1.0,fill=even"
    }  # fmt: skip


def test_samplers_that_never_pull_have_no_encoder(tmp_path):
    by_sampler = {spec.sampler.name: spec.encoder for spec in selection_specs(load_matrix(written(tmp_path, GOOD)))}
    assert by_sampler["uniform"] is None
    assert by_sampler["focus"].encoder == "blip"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (GOOD.replace("seeds", "sedes"), r"matrix.yaml:9: sedes: unknown key; did you mean 'seeds'\?"),
        (GOOD.replace("options:", "optoins:"), r"matrix.yaml:7: .*optoins: unknown key; did you mean 'options'\?"),
        (GOOD.replace("[longvideobench]", "[longvideobensh]"), "did you mean .longvideobench.. known: "),
        (GOOD + "k: [4]\n", "matrix.yaml:10: key 'k' is written twice"),
        (GOOD.replace("[0, 1]", "zero"), r"matrix.yaml:9: seeds: .*list"),
        (GOOD.replace("k: [8, 16]", "k: ["), r"matrix.yaml:\d+: "),
        (GOOD.replace("[8, 16]", "[8, 0]"), r"matrix.yaml:8: k.1: .*greater than 0"),
        (GOOD.replace("[0, 1]", "[-1]"), r"matrix.yaml:9: seeds.0: .*greater than or equal to 0"),
        (GOOD.replace("[0.1, 0.25]", "[]"), r"matrix.yaml:7: samplers.1.options.alpha: .*at least 1 item"),
        (GOOD.replace("{alpha: [0.1, 0.25]}", "alpha=0.1"), r"matrix.yaml:7: samplers.1.options: must be a mapping"),
        (GOOD + "models: [{name: a, model: b, frames: 8, gpus: none}]", r"matrix.yaml:10: models.0.gpus: .*number"),
        ("- a list", "must hold a mapping"),
        (GOOD.replace("k: [8, 16]", ""), "a matrix without models needs k"),
        (
            GOOD.replace("[longvideobench]", "[{name: own, benchmark: longvideobench, annotations: q.json}]")
            + "models: [zero_shot]\n",
            "benchmark 'own' has no task; models answer through an lmms-eval task",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_line(tmp_path, broken, message):
    with pytest.raises(InvalidInput, match=message):
        load_matrix(written(tmp_path, broken))


def test_a_part_that_does_not_say_where_its_questions_are_is_named_alone(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mine.yaml").write_text("benchmark: longvideobench\n")
    with pytest.raises(InvalidInput, match=r"mine.yaml:1: say where the questions are"):
        load_matrix(written(tmp_path, GOOD.replace("[longvideobench]", "[mine]")))


def test_a_value_of_another_kind_is_named_in_words(tmp_path):
    for line, message in (
        ("k: 4", r":2: k: must be a list: \[4\]"),
        ("k: [four]", r":2: k\.0: must be a whole number, got 'four'"),
        ("share_frames: maybe", r":2: share_frames: must be true or false, got 'maybe'"),
    ):
        path = written(tmp_path, f"samplers: [uniform]\n{line}\nbenchmarks: [longvideobench]\n")
        with pytest.raises(InvalidInput, match=message):
            load_matrix(path)


def test_a_mistake_in_what_replaces_a_key_is_not_said_to_stand_in_the_file(tmp_path):
    for key, value, message in (("seeds", "zero", ".*list"), ("sedes", [0], "unknown key; did you mean 'seeds'")):
        with pytest.raises(InvalidInput, match=rf"^{key} \(set over .*matrix.yaml\): {message}"):
            load_matrix(written(tmp_path, GOOD), overrides={key: value})


LVB = "{{name: {}, benchmark: longvideobench, annotations: {}.json}}"
MME = "{name: here, benchmark: videomme, annotations: mme.json}"


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (f"benchmarks: [{LVB.format('here', 'a')}, {MME}]", "benchmarks: two are called 'here'"),
        (
            f"benchmarks: [{LVB.format('here', 'a')}, {LVB.format('there', 'b')}]",
            "'here' and 'there' are both 'longvideobench'",
        ),
        ("encoders: [clip, {name: clip, encoder: clip}]", "encoders: two are called 'clip'"),
        ("models: [gpt4o, gpt4o]", "models: two are called 'gpt4o'"),
    ],
)
def test_parts_that_rows_could_not_tell_apart_are_refused(tmp_path, listed, message):
    kind = listed.partition(":")[0]
    remaining_lines = [line for line in GOOD.splitlines() if not line.startswith(kind)]
    with pytest.raises(InvalidInput, match=message):
        load_matrix(written(tmp_path, "\n".join([*remaining_lines, listed])))


def test_a_wrong_option_names_the_nearest(tmp_path):
    matrix = load_matrix(written(tmp_path, GOOD.replace("alpha", "alpa")))
    with pytest.raises(UnknownName, match="did you mean 'alpha'"):
        selection_specs(matrix)


def test_narrowing_keeps_what_is_named_and_refuses_what_is_not_there(tmp_path):
    matrix = load_matrix(written(tmp_path, GOOD))
    narrowed = narrow(matrix, {"sampler": ["focus"], "k": ["16"]})
    assert {(spec.sampler.name, spec.k) for spec in selection_specs(narrowed)} == {("focus", 16)}
    with pytest.raises(UnknownName, match="did you mean 'focus'"):
        narrow(matrix, {"sampler": ["fokus"]})
    with pytest.raises(UnknownName, match="list to narrow 'samplers'"):
        narrow(matrix, {"samplers": ["focus"]})


def model(**changes):
    values = {"name": "m", "model": "focus_qwen2_vl", "args": {"pretrained": "x"}, "frames": 8}
    return {**values, **changes}


def cell_ids(tmp_path, **changes):
    values = {**yaml.safe_load(GOOD), "models": [model()], **changes}
    return {cell.id for cell in cells(load_matrix(written(tmp_path, yaml.safe_dump(values))))}


@pytest.mark.parametrize(
    "changes",
    [
        {"frame_policy": "aks"},
        {"answer_parsing": "lmms_eval"},
        {"coarse_seed": "video"},
        {"seeds": [2, 3]},
        {"models": [model(args={"pretrained": "y"})]},
        {"models": [model(model="focus_qwen2_5_vl")]},
    ],
    ids=str,
)
def test_whatever_can_change_a_row_changes_the_identity(tmp_path, changes):
    assert not cell_ids(tmp_path) & cell_ids(tmp_path, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": 3},
        {"max_error_share": 0.5},
        {"share_frames": False},
        {"models": [model(name="other")]},
        # A run that was stopped by its limit goes on with a higher one, and pays for no answer twice.
        {"models": [model(args={"pretrained": "x", "max_cost": 5, "price_input": 2.5, "price_output": 10})]},
        {"models": [model(args={"pretrained": "x", "decode_gigabytes": 1, "device": "cpu", "num_concurrent": 64})]},
    ],
    ids=str,
)
def test_what_cannot_change_a_row_keeps_the_identity(tmp_path, changes):
    assert cell_ids(tmp_path) == cell_ids(tmp_path, **changes)


BRIEF = "benchmarks: [{name: b, benchmark: photo_events, annotations: a}]\nsamplers: [focus]\nk: [4]\n"


def test_a_matrix_names_encoders_and_samplers_with_their_options_in_place(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text(
        "benchmarks: [{name: b, benchmark: photo_events, annotations: a.json}]\nk: [4]\n"
        'encoders: [blip, "clip:checkpoint=clip-vit-large-patch14,device=cpu"]\n'
        'samplers: ["focus:alpha=0.1", {sampler: "focus:alpha=0.2", options: {clip_seconds: [8, 16]}}]\n'
    )
    matrix = load_matrix(file)
    blip, clip = matrix.encoders
    assert (blip.name, blip.encoder, blip.options, blip.disk_gigabytes) == ("blip", "blip", {}, 1.78)
    assert (clip.encoder, clip.disk_gigabytes) == ("clip", 1.71)
    assert clip.options == {"checkpoint": "clip-vit-large-patch14", "device": "cpu"}
    assert clip.name == "clip_checkpoint=clip-vit-large-patch14,device=cpu"  # it stands in the names of folders
    sampler_options = [spec.sampler.options for spec in selection_specs(matrix)]
    assert {(options["alpha"], options["clip_seconds"]) for options in sampler_options} == {
        (0.1, 16.0),
        (0.2, 8.0),
        (0.2, 16.0),
    }


def test_an_encoder_that_does_not_exist_names_files_and_encoders(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text(BRIEF + "encoders: [bilp]")
    with pytest.raises(
        InvalidInput, match=r"encoders: no encoders/bilp.yaml; did you mean 'blip'\? known: aimv2, blip, "
    ):
        load_matrix(file)


def test_a_file_of_an_encoder_beside_the_matrix_goes_before_the_encoder_of_that_name(tmp_path):
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders/blip.yaml").write_text("encoder: blip\noptions: {checkpoint: /weights/blip}\n")
    file = tmp_path / "m.yaml"
    file.write_text(BRIEF + "encoders: [blip]")
    assert load_matrix(file).encoders[0].options == {"checkpoint": "/weights/blip"}


def test_a_benchmark_of_a_file_beside_the_matrix_is_named_by_its_path(tmp_path):
    (tmp_path / "mine.yaml").write_text("benchmark: mine\nfields: longvideobench\nannotations: questions.json\n")
    (tmp_path / "table.yaml").write_text("benchmarks: [mine.yaml]\nsamplers: [uniform]\nk: [8]\n")
    (part,) = load_matrix(tmp_path / "table.yaml").benchmarks
    assert (part.name, part.benchmark) == ("mine", "mine")
    (tmp_path / "table.yaml").write_text("benchmarks: [theirs.yaml]\nsamplers: [uniform]\nk: [8]\n")
    with pytest.raises(InvalidInput, match=r"benchmarks: no such file .*theirs\.yaml; its path is relative"):
        load_matrix(tmp_path / "table.yaml")
