"""What `focus-eval doctor` says to fetch is fetched by that command, and then found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bench.machine import fetch_command, hub_repositories
from tests.support.keyframes.local_hub import LocalHub

pytestmark = pytest.mark.slow

FIND = """
import json, sys
from focus_eval.keyframes.encoders.weights import locate
print(json.dumps([str(locate("longclip-gmp-vit-l-14", model_type="clip").folder)]))
"""


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """$HF_HOME after the printed command, and what the hub was asked."""
    root = tmp_path_factory.mktemp("fetching")
    repositories = hub_repositories(root / "hub", models=[], encoders=["longclip"], benchmarks=[])
    with LocalHub(tuple(repositories)) as hub:
        environment = {**os.environ, "HF_HOME": str(root / "hf"), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        environment |= {"HF_HUB_DOWNLOAD_TIMEOUT": "600", "HF_HUB_ETAG_TIMEOUT": "600"}
        program = str(Path(sys.executable).with_name("hf"))
        command = [program, *fetch_command(repositories[0])[1:]]
        subprocess.run(command, env=environment, check=True, timeout=600)
        return root / "hf", list(hub.requests)


def test_only_the_files_that_are_needed_are_fetched(fetched):
    home, requests = fetched
    names = {path.name for path in home.rglob("snapshots/*/*")}
    assert {"model.safetensors", "config.json", "preprocessor_config.json", "tokenizer_config.json"} <= names
    assert not names & {"pytorch_model.bin", "tf_model.h5"}
    assert not any("pytorch_model" in request for request in requests if request.startswith("GET"))


def test_a_checkpoint_fetched_in_part_is_found_offline(fetched):
    home, _ = fetched
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", FIND], env=environment, check=True, capture_output=True, text=True)
    (folder,) = json.loads(result.stdout)
    assert (Path(folder) / "model.safetensors").exists()
    assert Path(folder).name == "6f0d363cbe2a68e3d3018c7161aecf40a918597a"
