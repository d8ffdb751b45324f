"""A checkpoint loads whole from its original names, or is refused in one line that says what to do."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from focus_eval.bench.lmms.llava_video.checkpoint import (
    HUB_NAME,
    find_checkpoint,
    load_network,
    read_config,
    transformers_config,
)
from focus_eval.bench.lmms.llava_video.model import load_tokenizer
from focus_eval.core.errors import FocusEvalError, InvalidInput, MissingWeights
from tests.support.bench.llava_video_parity import PUBLISHED_7B


def write_config(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    raw = {key: value for key, value in {**PUBLISHED_7B, **changes}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


@pytest.fixture
def copy(tiny_checkpoint, tmp_path):
    """A checkpoint the test may damage."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


def rewrite(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def test_the_published_config_gives_the_published_sizes(tmp_path):
    config = read_config(write_config(tmp_path))
    assert (config.side, config.pooling, config.newline, config.context_tokens) == (27, "bilinear", "grid", 32768)
    network_config = transformers_config(config, vocab_size=152064)
    assert network_config.vision_config.num_hidden_layers == 26
    assert network_config.vision_config.hidden_size == 1152
    assert network_config.vision_config.vision_use_head is False
    assert network_config.vision_config.layer_norm_eps == 1e-6
    assert network_config.text_config.rope_parameters["rope_theta"] == 1e6
    assert network_config.text_config.sliding_window is None
    assert network_config.text_config.rms_norm_eps == 1e-6


def test_the_published_7b_has_eight_billion_parameters(tmp_path):
    """Tower, projector and language model at full size, without allocating them."""
    from transformers import LlavaOnevisionForConditionalGeneration

    with torch.device("meta"):
        config = transformers_config(read_config(write_config(tmp_path)), vocab_size=152064)
        network = LlavaOnevisionForConditionalGeneration(config)
    assert sum(parameter.numel() for parameter in network.parameters()) == 8_030_348_832


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen2_vl"}, "'qwen2_vl' checkpoint, not LLaVA-Video; use focus_qwen2_vl"),
        ({"model_type": "llava_onevision"}, "use focus_llava_onevision .*take the original lmms-lab/LLaVA-Video-7B"),
        ({"model_type": "llava_llama"}, "use lmms-eval's own llava"),
        ({"model_type": "bert"}, "use the wrapper of its own family"),
        ({"mm_newline_position": "absent"}, "LLaVA-OneVision or older.*use focus_llava_onevision"),
        ({"mm_vision_tower": "openai/clip-vit-large-patch14-336"}, "vision tower 'openai/clip-vit"),
        ({"mm_projector_type": "linear"}, "mm_projector_type is 'linear', only 'mlp2x_gelu'"),
        ({"mm_patch_merge_type": "flat"}, "mm_patch_merge_type is 'flat'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ({"add_faster_video": True}, "add_faster_video is True"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"mm_spatial_pool_mode": "max"}, "mm_spatial_pool_mode is 'max', known: bilinear, average"),
        ({"rope_theta": "absent"}, "no rope_theta"),
    ],
)
def test_another_model_is_refused_by_its_config(tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        read_config(write_config(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_broken_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"config\.json(:1: not JSON|: must hold a JSON object)"):
        read_config(tmp_path)


def test_a_folder_without_a_config_names_the_checkpoint_to_take(tmp_path):
    with pytest.raises(MissingWeights, match=f"no config.json; .*{HUB_NAME}"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (HUB_NAME, f"fetch it with: hf download {HUB_NAME}"),
        ("/no/such/folder", "/no/such/folder: no such folder"),
    ],
)
def test_an_absent_checkpoint_says_which_how_large_and_how_to_fetch_it(tmp_path, monkeypatch, name, message):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingWeights, match=message) as caught:
        find_checkpoint(name)
    assert "\n" not in str(caught.value)


def test_shards_load_as_a_single_file_does(make_checkpoint, tiny_checkpoint, tmp_path):
    sharded = load_network(read_config(make_checkpoint(tmp_path / "sharded", shards=3)), dtype="float32").state_dict()
    single = load_network(read_config(tiny_checkpoint), dtype="float32").state_dict()
    assert sharded.keys() == single.keys()
    assert all(torch.equal(sharded[name], single[name]) for name in single)


def test_every_stored_tensor_lands_in_the_network(tiny_checkpoint):
    stored = load_file(tiny_checkpoint / "model.safetensors")
    network = load_network(read_config(tiny_checkpoint), dtype="float32", end_early=False)
    parameters_by_shape = {tuple(value.shape): [] for value in stored.values()}
    for value in network.state_dict().values():
        parameters_by_shape[tuple(value.shape)].append(value)
    assert len(network.state_dict()) == len(stored)
    for name, value in stored.items():
        assert any(torch.equal(value, parameter) for parameter in parameters_by_shape[tuple(value.shape)]), name


def test_missing_shards_are_counted_and_named(make_checkpoint, tmp_path):
    folder = make_checkpoint(tmp_path / "sharded", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(MissingWeights, match=r"1 of 3 shards are missing: model-00002-of-00003\.safetensors"):
        load_network(read_config(folder))


def test_weights_in_another_format_are_not_read(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(MissingWeights, match="only safetensors weights are read"):
        load_network(read_config(copy))


@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b""])
def test_a_pointer_in_place_of_weights_is_refused(copy, content):
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(MissingWeights, match="not a complete safetensors file"):
        load_network(read_config(copy))


def test_a_file_cut_short_is_refused(copy):
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MissingWeights, match="not a complete safetensors file"):
        load_network(read_config(copy))


def test_an_index_that_is_none_is_refused(copy):
    (copy / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(InvalidInput, match="not an index of safetensors shards"):
        load_network(read_config(copy))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("model.image_newline"), "1 parameters are missing, first model.image_newline"),
        (lambda state: state.update({"model.extra": torch.zeros(2)}), "1 parameters have no place in LLaVA-Video"),
        (lambda state: state.update({"model.norm.weight": torch.zeros(47)}), "1 parameters have another shape"),
        (lambda state: state.pop("lm_head.weight"), r"no lm_head\.weight"),
        (lambda state: state.pop("model.embed_tokens.weight"), r"no model\.embed_tokens\.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused(copy, change, message):
    rewrite(copy, change)
    with pytest.raises(InvalidInput, match=message):
        load_network(read_config(copy))


def test_a_vocabulary_the_original_loader_resized_loads_with_the_rows_it_has(copy, tiny_checkpoint):
    def cut(state):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            state[name] = state[name][:99].clone()

    rewrite(copy, cut)
    network = load_network(read_config(copy), dtype="float32")
    whole = load_network(read_config(tiny_checkpoint), dtype="float32")
    assert network.config.text_config.vocab_size == 99
    assert torch.equal(network.lm_head.weight, whole.lm_head.weight[:99])


def test_an_embedding_resized_without_its_head_is_refused(copy):
    rewrite(copy, lambda state: state.update({"lm_head.weight": state["lm_head.weight"][:99].clone()}))
    with pytest.raises(InvalidInput, match="embedding has 112 rows and lm_head 99"):
        load_network(read_config(copy))


def test_a_checkpoint_without_its_tokenizer_is_refused(copy):
    (copy / "tokenizer.json").unlink()
    with pytest.raises(MissingWeights, match=r"neither tokenizer\.json nor vocab\.json"):
        load_tokenizer(read_config(copy))


def test_an_unknown_dtype_is_refused(tiny_checkpoint):
    with pytest.raises(FocusEvalError, match="dtype must be bfloat16, float16 or float32, got 'int8'"):
        load_network(read_config(tiny_checkpoint), dtype="int8")
