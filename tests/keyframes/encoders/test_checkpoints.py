"""A checkpoint is found and known exactly, or one line says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file

from focus_eval.core.errors import EncoderError, MissingWeights
from focus_eval.keyframes.encoders.registry import ENCODERS, make_encoder
from focus_eval.keyframes.encoders.weights import known_checkpoints, locate, weights_identity
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS, write_tiny_blip, write_tiny_clip, write_tiny_siglip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_tiny_clip(tmp_path_factory.mktemp("clip") / "tiny-clip")


@pytest.fixture
def folder(written, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(written, tmp_path / "tiny-clip")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the model hub."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    return cache


def put_into(hub, folder, repository, *, commit, reference="main"):
    """Lay a folder out as the hub's cache does."""
    root = hub / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, root / "snapshots" / commit)
    (root / "refs" / reference).parent.mkdir(parents=True, exist_ok=True)
    (root / "refs" / reference).write_text(commit)


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", sorted(known_checkpoints()))
def test_a_known_checkpoint_that_is_missing_says_which_how_large_and_how_to_fetch_it(hub, name):
    checkpoint = known_checkpoints()[name]
    if checkpoint.encoder == "open_clip":
        pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    with pytest.raises(MissingWeights) as error:
        make_encoder(checkpoint.encoder, checkpoint=name)
    text = one_line(error)
    for fact in (
        name,
        checkpoint.repository,
        checkpoint.revision,
        checkpoint.size,
        "hf download",
        "checkpoint=FOLDER",
    ):
        assert fact in text


@pytest.mark.parametrize("name", sorted(known_checkpoints()))
def test_the_line_of_a_missing_checkpoint_names_where_it_was_looked_for_in_400_characters(monkeypatch, name):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(Path.home() / "nowhere/huggingface/hub"))
    with pytest.raises(
        MissingWeights, match=r"is not in the hub's cache ~/nowhere/huggingface/hub: run `hf download "
    ) as error:
        locate(name, model_type=known_checkpoints()[name].model_type)
    assert len(one_line(error)) <= 400


def test_an_unknown_repository_that_is_missing_says_how_to_fetch_it(hub):
    with pytest.raises(MissingWeights) as error:
        locate("someone/some-clip", revision="v1", model_type="clip")
    assert "hf download someone/some-clip --revision v1" in one_line(error)


def test_a_mistyped_name_is_told_with_the_nearest_of_the_known_ones(hub):
    with pytest.raises(MissingWeights, match=r"did you mean 'clip-vit-base-patch32'"):
        locate("clip-vit-base-patch23", model_type="clip")


def test_every_known_checkpoint_belongs_to_a_scorer():
    assert {checkpoint.encoder for checkpoint in known_checkpoints().values()} <= set(ENCODERS.names())


def test_a_checkpoint_in_the_cache_is_known_by_its_commit(hub, folder):
    commit = "0123456789abcdef0123456789abcdef01234567"
    put_into(hub, folder, "someone/some-clip", commit=commit)
    assert locate("someone/some-clip", model_type="clip").identity == f"someone/some-clip@{commit}"
    assert commit in make_encoder("clip", checkpoint="someone/some-clip", device="cpu").revision


def test_a_known_name_takes_the_known_revision_and_no_other(hub, folder):
    checkpoint = known_checkpoints()["clip-vit-base-patch32"]
    put_into(hub, folder, checkpoint.repository, commit="f" * 40)
    with pytest.raises(MissingWeights):
        locate(checkpoint.name, model_type="clip")
    assert locate(checkpoint.name, revision="main", model_type="clip").identity.endswith("f" * 40)
    shutil.rmtree(hub / "models--openai--clip-vit-base-patch32")
    put_into(hub, folder, checkpoint.repository, commit=checkpoint.revision)
    assert locate(checkpoint.name, model_type="clip").identity == f"{checkpoint.repository}@{checkpoint.revision}"
    assert locate(checkpoint.repository, model_type="clip").identity == f"{checkpoint.repository}@{checkpoint.revision}"


def test_a_pull_request_is_a_revision(hub, tmp_path):
    checkpoint = known_checkpoints()["blip-itm-base-coco"]
    folder = write_tiny_blip(tmp_path / "blip")
    put_into(hub, folder, checkpoint.repository, commit="a" * 40, reference=checkpoint.revision)
    assert locate(checkpoint.name, model_type="blip").identity == f"{checkpoint.repository}@{'a' * 40}"


def test_a_folder_is_known_by_its_content(folder):
    identity = locate(str(folder), model_type="clip").identity
    assert identity.startswith("tiny-clip@sha256:")
    weights = load_file(folder / "model.safetensors")
    weights["logit_scale"] = weights["logit_scale"] + 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert locate(str(folder), model_type="clip").identity != identity


def test_weights_in_several_files_give_the_same_embeddings(folder, tmp_path):
    import numpy as np

    whole = make_encoder("clip", checkpoint=str(folder), device="cpu")
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, shard_names in shards.items():
        save_file({name: weights[name] for name in shard_names}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, shard_names in shards.items() for name in shard_names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    sharded = make_encoder("clip", checkpoint=str(folder), device="cpu")
    frames = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), dtype=np.uint8)
    assert np.array_equal(whole.embed(frames), sharded.embed(frames))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(MissingWeights, match="no complete"):
        make_encoder("clip", checkpoint=str(folder))


def test_another_architecture_is_one_line(folder):
    with pytest.raises(EncoderError) as error:
        make_encoder("blip", checkpoint=str(folder))
    assert "holds a 'clip' model, this scorer needs 'blip'" in one_line(error)


def test_a_plain_clip_is_no_long_clip(folder):
    with pytest.raises(EncoderError) as error:
        make_encoder("longclip", checkpoint=str(folder))
    assert "77 text positions, 'longclip' needs 248" in one_line(error)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "header"])
def test_a_damaged_file_is_one_line(folder, damage):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(
        {"cut": whole[:-1000], "empty": b"", "text": b"not weights", "header": whole[:8] + b"{" * 99}[damage]
    )
    with pytest.raises(EncoderError) as error:
        make_encoder("clip", checkpoint=str(folder))
    assert "model.safetensors: damaged" in one_line(error)


def test_weights_that_leave_a_part_untrained_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    for name in ("visual_projection.weight", "text_projection.weight"):
        del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError) as error:
        make_encoder("clip", checkpoint=str(folder))
    assert "has no text_projection.weight and 1 more" in one_line(error)


def test_weights_of_another_shape_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"] = torch.zeros(24, 47)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError) as error:
        make_encoder("clip", checkpoint=str(folder))
    assert "another shape of visual_projection.weight" in one_line(error)


def test_a_pickle_is_never_read(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingWeights) as error:
        make_encoder("clip", checkpoint=str(folder))
    assert "other formats can run code" in one_line(error)


def test_code_that_came_with_a_checkpoint_is_not_run(folder, tmp_path):
    ran = tmp_path / "ran"
    for stem in ("configuration_evil", "tokenization_evil"):
        (folder / f"{stem}.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Evil: pass\n")
    for file, key in (("config.json", "AutoConfig"), ("tokenizer_config.json", "AutoTokenizer")):
        settings = json.loads((folder / file).read_text())
        stem = "configuration_evil" if key == "AutoConfig" else "tokenization_evil"
        settings["auto_map"] = {key: f"{stem}.Evil" if key == "AutoConfig" else [f"{stem}.Evil", None]}
        (folder / file).write_text(json.dumps(settings))
    make_encoder("clip", checkpoint=str(folder), device="cpu")
    assert not ran.exists()


def test_the_text_heads_of_a_blip_come_from_training_not_from_its_configuration(tmp_path):
    folder = write_tiny_blip(tmp_path / "blip")
    settings = json.loads((folder / "config.json").read_text())
    settings["text_config"]["num_attention_heads"] = 8
    (folder / "config.json").write_text(json.dumps(settings))
    loaded = make_encoder("blip", checkpoint=str(folder), text_heads=TINY_BLIP_HEADS, device="cpu")
    assert loaded._model.text_encoder.encoder.layer[0].crossattention.self.num_attention_heads == TINY_BLIP_HEADS
    assert f"text_heads={TINY_BLIP_HEADS}" in loaded.revision


def test_a_siglip_is_loaded_from_a_folder(tmp_path):
    assert "siglip" in make_encoder("siglip", checkpoint=str(write_tiny_siglip(tmp_path / "siglip"))).revision


def put_as_blobs(hub, folder, repository, *, commit):
    """Lay a folder out as the hub's cache does, large files named by their SHA-256 and others by their hash in git."""
    root = hub / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for file in sorted(item for item in folder.iterdir() if item.is_file()):
        content = file.read_bytes()
        is_large = file.suffix == ".safetensors"
        in_git = hashlib.sha1(b"blob %d\0" % len(content) + content)
        blob = root / "blobs" / (hashlib.sha256(content) if is_large else in_git).hexdigest()
        blob.write_bytes(content)
        (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    return snapshot


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_file_of_the_hubs_cache_that_is_not_what_it_is_named_by_is_refused(hub, folder, name):
    commit = "0123456789" * 4
    snapshot = put_as_blobs(hub, folder, "someone/some-clip", commit=commit)
    if not (snapshot / name).exists():
        pytest.skip(f"the tiny model has no {name}")
    assert locate("someone/some-clip", model_type="clip").identity == f"someone/some-clip@{commit}"
    blob = (snapshot / name).resolve()
    content = blob.read_bytes()
    end = b"\n" if name.endswith("json") else bytes([content[-1] ^ 1])
    blob.write_bytes(content[: len(content) - (name == "model.safetensors")] + end)
    with pytest.raises(EncoderError, match=rf"{name}: damaged.*delete .*{blob.name} and download it again"):
        locate("someone/some-clip", model_type="clip")
    assert weights_identity("someone/some-clip") == f"someone/some-clip@{commit}, damaged"
    blob.write_bytes(content)
    os.utime(blob, ns=(1, 1))
    assert weights_identity("someone/some-clip") == f"someone/some-clip@{commit}"
