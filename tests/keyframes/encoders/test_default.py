"""Without a name the best encoder whose weights are here is taken; a download happens after a yes and never else."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from focus_eval.core.errors import EncoderError
from focus_eval.keyframes.encoders.default import _check_space, offer_text
from focus_eval.keyframes.encoders.weights import known_checkpoints
from tests.conftest import require_packages
from tests.support.keyframes.local_hub import HubRepository, LocalHub

pytestmark = pytest.mark.slow

require_packages("torch", "open_clip")

OFFERED = known_checkpoints()["PE-Core-T-16-384"]
CHOOSE = """
import sys
from focus_eval.core.errors import FocusEvalError
from focus_eval.keyframes.encoders.default import default_encoder
try:
    print(default_encoder(lambda checkpoint: print(checkpoint.name) or sys.argv[1] == "yes"))
except FocusEvalError as error:
    print("refused", error)
"""


def write_checkpoint(folder, config="open_clip_config.json", content=None, weights="open_clip_model.safetensors"):
    """Write the files by which a checkpoint is known, with weights of a megabyte."""
    folder.mkdir(parents=True)
    (folder / config).write_text(json.dumps(content or {"model_cfg": {"vision_cfg": {}}}))
    save_file({"weight": np.zeros(1 << 18, dtype=np.float32)}, folder / weights)
    return folder


@pytest.fixture
def repository(tmp_path):
    """The offered checkpoint as its repository on the hub holds it."""
    folder = write_checkpoint(tmp_path / "repository")
    return HubRepository(name=OFFERED.repository, kind="model", folder=folder, commit=OFFERED.revision)


def start(home, answer, *, url="http://127.0.0.1:9", **options):
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "HF_HUB_DOWNLOAD_TIMEOUT": "30"}
    return subprocess.Popen(
        [sys.executable, "-c", CHOOSE, answer],
        env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def choose(home, answer, **options):
    """Return the lines that the choice printed: what was offered, then the encoder or the refusal."""
    out, err = start(home, answer, **options).communicate(timeout=120)
    assert "Traceback" not in err, err
    return out.splitlines()


def put_here(home, name):
    """Lay a tiny checkpoint into the hub's cache under the repository and revision of a known name."""
    checkpoint = known_checkpoints()[name]
    root = home / "hub" / f"models--{checkpoint.repository.replace('/', '--')}"
    files = {}
    if checkpoint.encoder != "open_clip":
        model_type = checkpoint.model_type if isinstance(checkpoint.model_type, str) else checkpoint.model_type[0]
        files = {"config": "config.json", "content": {"model_type": model_type}, "weights": "model.safetensors"}
    commit = checkpoint.revision if checkpoint.is_pinned else "a" * 40
    write_checkpoint(root / "snapshots" / commit, **files)
    if not checkpoint.is_pinned:
        (root / "refs").mkdir()
        (root / "refs" / checkpoint.revision).write_text(commit)


def test_the_best_weights_that_are_here_are_taken_and_nothing_is_offered(tmp_path):
    for name in ("clip-vit-base-patch32", "siglip2-so400m-patch14-384", "MobileCLIP2-S2", "PE-Core-T-16-384"):
        put_here(tmp_path, name)
        assert choose(tmp_path, "yes") == [f"{known_checkpoints()[name].encoder}:checkpoint={name}"]


def test_without_a_yes_nothing_is_fetched_and_offline_answers(tmp_path, repository):
    with LocalHub((repository,)) as hub:
        assert choose(tmp_path, "no", url=hub.url) == [OFFERED.name, "offline"]
        assert hub.requests == []
    assert not (tmp_path / "hub").exists()


def test_after_a_yes_the_download_is_taken_now_and_next_time(tmp_path, repository):
    with LocalHub((repository,)) as hub:
        assert choose(tmp_path, "yes", url=hub.url) == [OFFERED.name, f"open_clip:checkpoint={OFFERED.name}"]
    assert choose(tmp_path, "no") == [f"open_clip:checkpoint={OFFERED.name}"]


def test_two_processes_that_download_at_once_both_get_it(tmp_path, repository):
    with LocalHub((repository,)) as hub:
        processes = [start(tmp_path, "yes", url=hub.url) for _ in range(2)]
        outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [lines[-1] for lines in outputs] == [f"open_clip:checkpoint={OFFERED.name}"] * 2


def test_without_a_connection_one_line_says_so(tmp_path):
    *_, refusal = choose(tmp_path, "yes")
    assert refusal.startswith(f"refused {OFFERED.name} was not downloaded (")
    assert refusal.endswith("); try again, it continues, or --encoder offline")
    assert "snapshot" not in refusal, "the hub's advice, cut off"
    assert choose(tmp_path, "no") == [OFFERED.name, "offline"]


class CuttingHandler(LocalHub.handler):
    """Ends the connection in the middle of the weights."""

    def _file(self, repository, name):
        if self.command == "HEAD" or not name.endswith(".safetensors"):
            return super()._file(repository, name)
        data = repository.files[name].read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("ETag", f'"{repository.digests[name]}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.close_connection = True
        return None


class CuttingHub(LocalHub):
    """A hub whose connection is cut."""

    handler = CuttingHandler


def test_a_connection_that_is_cut_leaves_no_checkpoint(tmp_path, repository):
    with CuttingHub((repository,)) as hub:
        *_, refusal = choose(tmp_path, "yes", url=hub.url)
    assert refusal.startswith(f"refused {OFFERED.name} was not downloaded (")
    assert choose(tmp_path, "no") == [OFFERED.name, "offline"]
    with LocalHub((repository,)) as hub:
        assert choose(tmp_path, "yes", url=hub.url)[-1] == f"open_clip:checkpoint={OFFERED.name}"


def test_a_file_of_another_checksum_is_deleted_and_refused(tmp_path, repository):
    repository.digests["open_clip_model.safetensors"] = "f" * 64
    with LocalHub((repository,)) as hub:
        *_, refusal = choose(tmp_path, "yes", url=hub.url)
    assert refusal.endswith(
        f"open_clip_model.safetensors of {OFFERED.name} came damaged and was deleted; download it again"
    )
    assert choose(tmp_path, "no") == [OFFERED.name, "offline"]


def limit_file_size():
    """Limit the files of this process to 64 KiB, so that writing a larger one fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def test_a_disk_that_takes_no_more_leaves_no_checkpoint(tmp_path, repository):
    with LocalHub((repository,)) as hub:
        *_, refusal = choose(tmp_path, "yes", url=hub.url, preexec_fn=limit_file_size)
    assert refusal.startswith(f"refused {OFFERED.name} was not downloaded (")
    assert choose(tmp_path, "no") == [OFFERED.name, "offline"]


def test_a_download_larger_than_the_disk_is_refused_before_it_starts(tmp_path):
    with pytest.raises(EncoderError, match=r"takes 1000000\.00 GB, .* GB free: make room"):
        _check_space(replace(OFFERED, gigabytes=1e6), tmp_path / "absent" / "hub")


def test_the_offer_names_size_and_licence():
    assert offer_text(OFFERED).startswith("PE-Core-T-16-384 (0.28 GB, Apache-2.0)")


def test_every_offered_checkpoint_is_pinned():
    offered = [checkpoint for checkpoint in known_checkpoints().values() if checkpoint.licence]
    assert offered
    assert all(checkpoint.is_pinned and checkpoint.gigabytes for checkpoint in offered)
