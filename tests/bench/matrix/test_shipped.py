"""Shipped matrices are found by name, listed, and copied to where they can be edited."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from focus_eval.bench.commands.lists import matrix_size
from focus_eval.bench.matrix.cells import cells, selection_specs
from focus_eval.bench.matrix.config import NO_MATRICES, find_matrix, load_matrix, shipped_matrices, title_of
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.encoders.cost import blip_gmacs, dual_encoder_gmacs


@pytest.mark.parametrize("name", ["alpha", "main_results", "temperature", "demo"])
def test_a_shipped_matrix_is_found_by_its_name_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_matrix(name).name == name


@pytest.mark.parametrize("name", ["configs/paper/alpha.yaml", "paper/alpha.yaml"])
def test_the_path_in_the_repository_finds_it_without_a_clone(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_matrix(name) == resource_path("configs") / "paper" / "alpha.yaml"


def test_a_file_of_the_user_comes_before_a_shipped_one_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "alpha").write_text((resource_path("configs") / "paper" / "encoder.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert load_matrix("alpha").anchors == "encoder"


def test_a_name_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'main_results'"):
        find_matrix("main_result")
    with pytest.raises(InvalidInput, match=r"alpha.yml: no such file; shipped matrices: .*alpha"):
        find_matrix("alpha.yml")


def test_every_shipped_matrix_says_in_one_sentence_what_it_is():
    titles = {name: title_of(file) for name, file in shipped_matrices().items()}
    assert all(titles.values()), titles
    assert titles["scan"] == "Does a cheap encoder that looks everywhere first pay?"
    assert titles["alpha"] == "Table 4: the share of clips that are looked at closely"


def test_no_two_shipped_matrices_have_one_name():
    files = [
        file for folder in ("paper", "ablations", ".") for file in (resource_path("configs") / folder).glob("*.yaml")
    ]
    assert len(shipped_matrices()) == len([file for file in files if file.name not in NO_MATRICES])


def test_the_list_names_every_matrix_with_table_benchmarks_models_and_size():
    lines = CliRunner().invoke(app, ["list", "configs"]).output.splitlines()
    for name in shipped_matrices():
        assert any(line.split(" (")[0] == name for line in lines)
    at = lines.index("by_length (table 2)")
    # 8 samplers on 1337 + 2700 questions, one model
    entry = " ".join(lines[at : at + 4])
    for part in ("K = 64", "longvideobench, videomme with llava_video_7b", "32,296 answers"):
        assert part in entry


def test_the_size_is_the_product_of_questions_and_cells_and_marks_what_is_not_known():
    matrix = load_matrix("alpha")
    assert matrix_size(matrix)[:2] == (f"{6 * 1337:,}", f"{len(cells(matrix)) * 1337:,}")
    assert matrix_size(load_matrix("more_benchmarks"))[0].endswith("+")  # VSI-Bench's config states no number


def test_a_copy_can_be_edited_and_run_where_it_lies(tmp_path):
    result = CliRunner().invoke(app, ["list", "configs", "--copy", str(tmp_path / "mine")])
    assert result.exit_code == 0, result.output
    model = tmp_path / "mine" / "models" / "llava_video_7b.yaml"
    model.write_text(model.read_text().replace("lmms-lab/LLaVA-Video-7B-Qwen2", "my/checkpoint", 1))
    matrix = load_matrix(tmp_path / "mine" / "paper" / "alpha.yaml")
    assert matrix.models[0].args["pretrained"] == "my/checkpoint"
    second = CliRunner().invoke(app, ["list", "configs", "--copy", str(tmp_path / "mine")])
    assert isinstance(second.exception, InvalidInput)
    assert "my/checkpoint" in model.read_text()


@pytest.mark.slow
def test_the_relative_costs_of_shipped_matrices_are_those_of_the_networks():
    transformers = pytest.importorskip("transformers")
    open_clip = pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    from focus_eval.keyframes.encoders.open_clip import image_gmacs

    large = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 384}
    text = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    base = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16}
    so400m = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 384}
    gmacs_by_network = {
        "clip": dual_encoder_gmacs(transformers.CLIPConfig()),
        "blip": blip_gmacs(transformers.BlipConfig(vision_config={**large, "patch_size": 16}, text_config=text), 35),
        "siglip2_base": dual_encoder_gmacs(transformers.SiglipConfig(vision_config=base)),
        "siglip2": dual_encoder_gmacs(transformers.SiglipConfig(vision_config={**so400m, "patch_size": 14})),
        "pe_core": {"image": image_gmacs(json.dumps(open_clip.get_model_config("PE-Core-L-14-336")))},
        "mobileclip2": {"image": image_gmacs(json.dumps(open_clip.get_model_config("MobileCLIP2-S0")))},
    }
    cost_by_pair = {
        (spec.scan_encoder.name, spec.encoder.name): spec.sampler.relative_cost
        for name in ("scan", "by_length")
        for spec in selection_specs(load_matrix(name))
        if spec.scan_encoder
    }
    ratios = {
        (scan, main): gmacs_by_network[scan]["image"] / gmacs_by_network[main]["image"] for scan, main in cost_by_pair
    }
    assert cost_by_pair == pytest.approx(ratios, rel=2e-3)
    assert {*cost_by_pair} == {("clip", "blip"), ("siglip2_base", "siglip2"), ("mobileclip2", "pe_core")}
