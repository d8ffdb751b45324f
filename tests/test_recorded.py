"""The recorded tensors the tests carry are those that were given."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

EVERY_EIGHTH = ("f8_average_grid", "f8_average_one_token", "f8_bilinear_grid", "f8_bilinear_one_token")


def test_the_llava_video_tensors_are_the_given_ones(shared, recorded_llava_video):
    tensors = load_file(shared("parity/llava_video") / "cases.safetensors")
    carried = load_file(recorded_llava_video / "cases.safetensors")
    for case in EVERY_EIGHTH:
        rows = carried.pop(f"{case}.feature_positions").long()
        features = tensors[f"{case}.video_features"]
        assert set(range(0, len(features), 8)) | {len(features) - 1} == set(rows.tolist())
        tensors[f"{case}.video_features"] = features[rows]
    left_out = {name for name in tensors if name.startswith("stage.")}
    assert set(carried) == set(tensors) - left_out
    assert all(carried[name].equal(tensors[name]) for name in carried)


def test_the_blip_weights_are_the_given_ones_for_every_recorded_text(shared, recorded_blip):
    weights = load_file(shared("parity/blip") / "weights.safetensors")
    carried = load_file(recorded_blip / "weights.safetensors")
    words = "text_encoder.embeddings.word_embeddings.weight"
    row_numbers = carried.pop(words)
    original = weights.pop(words)
    cases = json.loads((recorded_blip / "cases.json").read_text())
    used = sorted({number for text in cases["texts"] for number in text["itm_input_ids"]})
    assert row_numbers[used].equal(original[used])
    assert set(carried) == set(weights)
    assert all(carried[name].equal(weights[name]) for name in carried)


@pytest.mark.parametrize(
    ("name_of_folder", "names"),
    [
        ("blip", ("cases.json", "config.json", "golden.safetensors", "vocab.txt")),
        ("llava_video", ("cases_meta.json", "config.json", "prompts.json", "weights.safetensors")),
    ],
)
def test_the_other_recorded_files_are_the_given_ones(
    shared, recorded_blip, recorded_llava_video, name_of_folder, names
):
    folder = {"blip": recorded_blip, "llava_video": recorded_llava_video}[name_of_folder]
    for name in names:
        assert (folder / name).read_bytes() == (shared(f"parity/{name_of_folder}") / name).read_bytes(), name
    for image in folder.glob("images/*.png"):
        assert image.read_bytes() == (shared(f"parity/{name_of_folder}") / "images" / image.name).read_bytes(), (
            image.name
        )
