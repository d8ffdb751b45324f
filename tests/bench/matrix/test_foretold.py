"""A table's frames and hours are foretold before its data is there, from shipped lengths and stated rates."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.hours import answer_lines, load_machine
from focus_eval.bench.matrix.plan import make_plan
from focus_eval.bench.matrix.questions import public_facts, stated_sets
from focus_eval.core.resources import resource_path
from tests.conftest import shared_path

PAPER = resource_path("paper")


@pytest.fixture(scope="module")
def alpha():
    return load_matrix("alpha")


@pytest.fixture(scope="module")
def plan(alpha):
    return make_plan(alpha, sets=stated_sets(alpha))


def test_frames_scored_by_the_shipped_lengths_are_those_of_the_paper(plan):
    published = [float(row["frames_seen_percent"]) for row in csv.DictReader((PAPER / "alpha.csv").open())]
    shares = {item.spec.label: 100 * item.share_scored for item in plan.selections}
    labels = ("focus,alpha=0.1", "focus", "focus,alpha=0.5")
    assert [shares[label] for label in labels] == pytest.approx(published, abs=0.1)
    assert plan.questions == {"longvideobench": (1337, 1337)}


@pytest.mark.parametrize(
    ("name", "file", "video", "seconds"),
    [("longvideobench", "lvb_val.json", "video_id", "duration"), ("mlvu", "mlvu_dev.json", "video_name", "duration")],
)
def test_shipped_lengths_add_up_to_those_of_the_annotation(name, file, video, seconds):
    documents = json.loads(shared_path(f"data/{file}").read_text())
    matrix = SimpleNamespace(benchmarks=[SimpleNamespace(name=name, benchmark=name)], limit=None, only_questions=[])
    questions = stated_sets(matrix)[name].questions
    assert len(questions) == len(documents)
    assert len({question.video for question in questions}) == len({document[video] for document in documents})
    total = sum(float(document[seconds]) for document in documents)
    assert sum(question.duration_seconds for question in questions) == pytest.approx(total, rel=0.001)


def test_hours_of_answering_are_the_products_over_the_rate_reached(plan):
    machine = load_machine("eight_h100").model_copy(
        update={"gpus": 2, "gpu_tflops": 100.0, "gpu_terabytes_per_second": 2.0, "share_reached": 0.5}
    )
    (line,) = answer_lines(plan, machine)
    answers = 6 * 1337
    tokens = answers * (64 * 210 + 300)
    assert (line.answers, line.tokens, line.dollars) == (answers, tokens, None)
    attention = 28 * 3584 * (64 * 210 + 300) ** 2
    products = 1e9 * (6.53 * tokens + 333 * 64 * answers) + attention * answers
    seconds = 2 * products / 50e12 + answers * 2 * 6.53e9 * 2 / 2e12
    assert line.hours == pytest.approx(seconds / 2 / 3600)
    assert answer_lines(plan, machine.model_copy(update={"gpu_tflops": None}))[0].hours is None


def counted_gmacs(network, *inputs, **named_inputs):
    """Return 10^9 multiply-adds of a forward by torch's counter; on the device "meta" nothing is computed."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(*inputs, **named_inputs)
    return counter.get_total_flops() / 2e9


def test_stated_sizes_of_image_towers_are_those_that_torch_counts():
    torch, t = pytest.importorskip("torch"), pytest.importorskip("transformers")
    qwen = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")

    def qwen_tower(depth):
        config = t.Qwen2VLConfig().vision_config
        config.depth = depth
        with torch.device("meta"):
            network = qwen.Qwen2VisionTransformerPretrainedModel._from_config(config, attn_implementation="eager")
            pixels = torch.zeros(26 * 46, 2 * 3 * 14**2)  # two frames of 644x364 in patches of 14
        # Positions are read from the values of the grid, which a tensor on "meta" does not have.
        network.rotary_pos_emb.register_forward_pre_hook(lambda module, inputs: tuple(x.to("meta") for x in inputs))
        return counted_gmacs(network, pixels, grid_thw=torch.tensor([[1, 26, 46]])) / 2

    def siglip_tower(depth):
        sizes = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "vision_use_head": False}
        config = t.SiglipVisionConfig(image_size=384, patch_size=14, num_hidden_layers=depth, **sizes)
        with torch.device("meta"):
            network = t.SiglipVisionModel._from_config(config, attn_implementation="eager")
            return counted_gmacs(network, torch.zeros(1, 3, 384, 384))

    def whole(count, depth):
        return count(1) + (depth - 1) * (count(2) - count(1))

    sizes, siglip = public_facts("models"), whole(siglip_tower, 26)
    assert whole(qwen_tower, 32) == pytest.approx(sizes["qwen2_vl_7b"]["frame_gmacs"], rel=0.002)
    for name in ("llava_ov_7b", "llava_video_7b", "llava_video_72b"):
        width = sizes[name]["width"]
        projector = 27**2 * (1152 * width + width**2) / 1e9
        assert siglip + projector == pytest.approx(sizes[name]["frame_gmacs"], rel=0.002), name


@pytest.mark.parametrize(
    ("name", "shape"), [("qwen2_vl_7b", (18944, 28, 4)), ("llava_video_72b", (29568, 64, 8))], ids=["7B", "72B"]
)
def test_stated_sizes_of_language_models_are_the_parameters_of_their_layers(name, shape):
    torch, t = pytest.importorskip("torch"), pytest.importorskip("transformers")
    size, (mlp, heads, key_heads) = public_facts("models")[name], shape
    with torch.device("meta"):
        config = t.Qwen2Config(
            hidden_size=size["width"], intermediate_size=mlp, num_hidden_layers=size["layers"], vocab_size=8,
            num_attention_heads=heads, num_key_value_heads=key_heads,
        )  # fmt: skip
        layers = t.Qwen2Model(config).layers
    n_parameters = sum(parameter.numel() for parameter in layers.parameters())
    assert n_parameters / 1e9 == pytest.approx(size["billions"], rel=0.001)


def test_a_service_costs_dollars_and_no_hours():
    matrix = load_matrix("main_results", overrides={"models": ["gpt4o"], "benchmarks": ["longvideobench"]})
    (line,) = answer_lines(make_plan(matrix, sets=stated_sets(matrix)), load_machine("eight_h100"))
    assert line.hours is None
    assert line.dollars == pytest.approx(line.answers * (32 * 425 + 300) * 5 / 1e6)


@pytest.fixture
def run_plan(tmp_path):
    """Run `focus-eval plan` in a process on a machine without data; return it, with whether torch was imported."""
    code = (
        "import sys; from focus_eval.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    environment = {"HF_HOME": str(tmp_path), "PATH": "", "COLUMNS": "200"}
    options = {"capture_output": True, "text": True, "timeout": 300, "env": environment, "cwd": tmp_path}
    return lambda *words: subprocess.run([sys.executable, "-c", code, "plan", *words], **options)


def test_plan_foretells_a_matrix_without_its_data_and_without_torch(run_plan):
    process = run_plan("alpha", "--machine", "eight_h100")
    assert "planned from shipped lengths" in process.stdout, process.stderr
    assert "5.5 GPU hours" in process.stdout
    assert "its cost is not known" not in process.stdout
    assert process.stdout.strip().endswith("False")


@pytest.mark.slow
def test_plan_names_selections_without_frames_before_the_data_is_there(run_plan):
    for k, is_named in (("4", True), ("32", False)):
        process = run_plan("efficiency", "--only", "sampler=aks", "--set", f"k={k}")
        assert ("frames of aks, K 4: 1337 of 1337 questions" in process.stdout) == is_named, process.stderr
