"""The bytes that a plan says a run will write are those that it writes, whatever the sampler and encoder."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import yaml

from focus_eval.matrix import preflight as disk
from focus_eval.matrix.config import EncoderConfig, load_matrix
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.plan import load_sets
from focus_eval.matrix.preflight import LARGEST_EMBEDDING, disk_estimate, embedding_bytes
from focus_eval.matrix.running import complete_run
from focus_eval.video.clip_writer import ClipWriter
from support.load import write_load_matrix
from support.random_weights import write_tiny_blip, write_tiny_clip, write_tiny_siglip

from .conftest import lvb_question

# The estimate may be this many times too high, and a little too low.
FACTOR, SHORT = 2.5, 0.9
SAMPLERS = (
    "uniform", "uniform_1fps", "random", "blind", "oracle", "topk", "aks", "bolt", "focus", "focus_c", "focus_f",
    "focus_m", "focus_gop", "focus_iterative", "focus_released", "focus_cover", "even_cover", "even_topk",
)  # fmt: skip


def sets_of(matrix):
    return {f"{matrix.name}/{name}": questions for name, questions in load_sets(matrix).items()}


@pytest.fixture
def written(monkeypatch):
    """The bytes of all lines by part, just before they become Parquet."""
    found, fold = {}, RunFolder.compact

    def measured(run, spec, order):
        found[spec.name] = sum(path.stat().st_size for path in run.part(spec).glob("*.jsonl"))
        fold(run, spec, order)

    monkeypatch.setattr(RunFolder, "compact", measured)
    return found


def test_rows_of_every_kind_of_sampler_take_what_is_estimated(tmp_path, written):
    matrix = load_matrix(write_load_matrix(tmp_path / "data", 30, samplers=SAMPLERS, k=64))
    matrix = matrix.model_copy(update={"max_error_share": 1.0})
    complete_run(matrix, out=tmp_path / "runs" / "load")
    assert len(written) == len(SAMPLERS)
    for sampler in matrix.samplers:
        alone = matrix.model_copy(update={"samplers": [sampler]})
        estimate = disk_estimate(alone, sets_of(alone))
        (found,) = [size for name, size in written.items() if name.startswith(f"made_up-{sampler.sampler}-")]
        assert SHORT * found < estimate.rows < FACTOR * found, sampler.sampler
        assert estimate.store == 0, "recorded relevance is not stored"


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Two encoders that store embeddings and one that does not, on two videos."""
    folder = tmp_path_factory.mktemp("disk")
    rng, questions = np.random.default_rng(0), []
    for number in range(2):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=8, gop=24) as writer:
            for _ in range(12 + 12 * (number % 2)):
                writer.write(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8), n_times=8)
        questions += [
            lvb_question(10 * number + part, f"v{number}", 12 + 12 * (number % 2), answer=part) for part in (0, 1)
        ]
    (folder / "questions.json").write_text(json.dumps(questions))
    weights = {"clip": write_tiny_clip, "siglip": write_tiny_siglip, "blip": write_tiny_blip}
    encoders = [
        {"name": name, "encoder": name, "options": {"checkpoint": str(write(folder / name)), "device": "cpu"}}
        for name, write in weights.items()
    ]
    annotations = str(folder / "questions.json")
    benchmark = {
        "name": "lvb", "benchmark": "longvideobench", "annotations": annotations, "videos": str(folder)
    }  # fmt: skip
    samplers = ["uniform", "topk", "focus"]
    document = {"name": "disk", "benchmarks": [benchmark], "encoders": encoders, "samplers": samplers, "k": [8]}
    (folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return load_matrix(folder / "matrix.yaml")


@pytest.fixture(scope="module")
def ran(videos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran") / "runs" / "disk"
    before = disk_estimate(videos, sets_of(videos), folder, store=folder.parent / "store.sqlite")
    complete_run(videos, out=folder)
    return before, folder


def test_the_store_takes_what_is_estimated(ran):
    before, folder = ran
    with sqlite3.connect(folder.parent / "store.sqlite") as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        entries = store.execute("SELECT count(*) FROM relevance").fetchone()[0]
        vectors = store.execute("SELECT sum(length(vector) + 30) FROM embedding").fetchone()[0]
    store.close()
    assert 100 < entries < 10_000
    held = 30 * entries + vectors
    assert SHORT * held < before.store - disk.LOG_BYTES < FACTOR * held


def test_where_each_question_pays_alone_nothing_is_stored(videos):
    alone = videos.model_copy(update={"share_frames": False})
    assert disk_estimate(alone, sets_of(alone)).store == 0
    uniform = videos.model_copy(update={"samplers": videos.samplers[:1]})
    assert disk_estimate(uniform, sets_of(uniform)).store == 0


def test_what_lies_there_already_is_not_counted_again(videos, ran):
    before, folder = ran
    again = disk_estimate(videos, sets_of(videos), folder, store=folder.parent / "store.sqlite")
    assert before.rows > 10_000
    assert again.rows == 0
    assert again.store == disk.LOG_BYTES
    other = videos.model_copy(update={"seeds": [1]})
    assert disk_estimate(other, sets_of(other), folder).rows > 0.5 * before.rows


def test_embeddings_are_as_long_as_the_checkpoint_says(videos):
    sizes = {encoder.name: embedding_bytes(encoder) for encoder in videos.encoders}
    stated = {
        encoder.name: json.loads((Path(encoder.options["checkpoint"]) / "config.json").read_text())
        for encoder in videos.encoders
    }
    assert sizes == {
        "clip": 4 * stated["clip"]["projection_dim"],
        "siglip": 4 * stated["siglip"]["vision_config"]["hidden_size"],
        "blip": 0,
    }
    elsewhere = {"checkpoint": "nobody/has-this"}
    assert embedding_bytes(EncoderConfig(name="c", encoder="clip", options=elsewhere)) == 4 * LARGEST_EMBEDDING
    assert embedding_bytes(EncoderConfig(name="t", encoder="recorded", options={"path": "t.npy"})) is None


def test_a_few_videos_tell_of_all(tmp_path, monkeypatch):
    matrix = load_matrix(write_load_matrix(tmp_path / "data", 1000, samplers=("uniform", "topk")))
    all_of_them = sets_of(matrix)
    few = disk_estimate(matrix, all_of_them).rows
    monkeypatch.setattr(disk, "MOST_VIDEOS", 10_000)
    assert few == pytest.approx(disk_estimate(matrix, all_of_them).rows, rel=0.1)


def test_a_hundred_thousand_questions_with_recorded_relevance_need_a_few_gigabytes(tmp_path):
    matrix = load_matrix(write_load_matrix(tmp_path / "data", 1000, samplers=("uniform", "topk")))
    assert 0.3 < 100 * disk_estimate(matrix, sets_of(matrix)).gigabytes < 3
