"""`focus-eval doctor` says what is here and what is missing."""

from __future__ import annotations

import json
import shutil

import av
import huggingface_hub.constants
import pytest
from typer.testing import CliRunner

from focus_eval.bench.commands import doctor
from focus_eval.cli import app
from focus_eval.keyframes.encoders.weights import known_checkpoints
from tests.support.keyframes.random_weights import write_tiny_clip

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path, monkeypatch):
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    return cache


def facts(*arguments: str) -> dict:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def put(hub, name):
    checkpoint = known_checkpoints()[name]
    folder = hub / f"models--{checkpoint.repository.replace('/', '--')}" / "snapshots" / checkpoint.revision
    write_tiny_clip(folder)
    return folder


def test_every_known_checkpoint_is_listed_with_how_to_fetch_it(hub):
    listed = facts()["checkpoints"]
    assert set(listed) == set(known_checkpoints())
    for name, row in listed.items():
        assert row["state"] == f"missing: {known_checkpoints()[name].fetch_command}"
        assert row["size"] == known_checkpoints()[name].size


def test_the_encoder_of_select_is_named_before_and_after_one_is_fetched(hub):
    default_encoder = facts()["default encoder"]
    assert default_encoder["select"] == "offline"
    assert "downloads one" in default_encoder["knows more"] or "pip install" in default_encoder["knows more"]
    put(hub, "clip-vit-base-patch32")
    assert facts()["default encoder"] == {"select": "clip:checkpoint=clip-vit-base-patch32"}


def test_a_checkpoint_that_is_there_is_listed_with_its_place(hub):
    folder = put(hub, "clip-vit-base-patch32")
    listed = facts()["checkpoints"]
    assert listed["clip-vit-base-patch32"]["state"] == f"present: {folder}"
    assert listed["clip-vit-large-patch14"]["state"].startswith("missing")


def test_a_damaged_checkpoint_is_no_present_one(hub):
    folder = put(hub, "clip-vit-base-patch32")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    assert "damaged" in facts()["checkpoints"]["clip-vit-base-patch32"]["state"]


def test_versions_devices_and_decoders_are_named(hub):
    sections = facts()
    assert {"python", "torch", "transformers", "pillow"} <= set(sections["versions"])
    assert "cores" in sections["devices"]["cpu"]
    assert "h264" in sections["decoders"]["pyav"]
    assert all("mapped to SDR" in sections["colours"][transfer] for transfer in ("PQ", "HLG"))
    assert f"FFmpeg {av.ffmpeg_version_info}" in sections["decoders"]["pyav"]


def test_the_table_shows_brackets_and_whole_commands(hub, monkeypatch):
    monkeypatch.setattr(doctor, "decoders", lambda: {"decord": 'missing: pip install "focus-eval[decord]"'})
    printed = CliRunner().invoke(app, ["doctor"]).output
    assert 'pip install "focus-eval[decord]"' in printed
    for checkpoint in known_checkpoints().values():
        assert checkpoint.fetch_command in printed


def test_nothing_is_written(hub, tmp_path):
    files = sorted(tmp_path.rglob("*"))
    facts()
    assert sorted(tmp_path.rglob("*")) == files
    shutil.rmtree(hub, ignore_errors=True)
