"""Models that other packages register under `focus_eval.models`."""

from __future__ import annotations

import sys

import pytest

from focus_eval.bench.lmms.manifests import MODELS, Paths, known_models
from focus_eval.bench.matrix.answering import load_session
from focus_eval.bench.matrix.config import ModelConfig

PLUGIN = """
from focus_eval.bench.lmms.models.zero_shot import FocusZeroShot


class FocusMine(FocusZeroShot):
    model_id = "focus_mine"
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder on the path as pip leaves it, with one package that registers one model."""
    import lmms_eval.models

    (tmp_path / "my_models.py").write_text(PLUGIN)
    info = tmp_path / "my_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[focus_eval.models]\nfocus_mine = my_models:FocusMine\n")
    monkeypatch.syspath_prepend(tmp_path)
    MODELS.clear()
    # lmms-eval fills its registry once in a process, perhaps in an earlier test.
    monkeypatch.setattr(lmms_eval.models, "MODEL_REGISTRY_V2", lmms_eval.models._initialize_model_registry())
    yield
    monkeypatch.undo()
    sys.modules.pop("my_models", None)
    MODELS.clear()


@pytest.mark.usefixtures("installed")
def test_a_matrix_loads_a_model_of_another_package():
    model = load_session(ModelConfig(name="mine", model="focus_mine", frames=4), frames=4).model
    assert (type(model).__module__, model.model_id, model.is_simple) == ("my_models", "focus_mine", True)


MODELS_BEFORE = known_models()


def test_a_model_may_have_a_class_for_each_kind_of_request(install_plugins):
    install_plugins(MODELS, **{"focus_mine": "mine:Simple", "focus_mine.chat": "mine.more:Chat"})
    models = known_models()
    assert models.pop("focus_mine") == Paths(simple="mine.Simple", chat="mine.more.Chat")
    assert models == MODELS_BEFORE


@pytest.mark.parametrize("name", ["focus_qwen2_vl", "focus_qwen2_vl.chat"])
def test_a_name_of_ours_stays_ours(install_plugins, name):
    install_plugins(MODELS, **{name: "mine:Mine"})
    with pytest.warns(UserWarning, match=rf"model plugin '{name}' \(mine:Mine\): the name .*is taken"):
        assert known_models() == MODELS_BEFORE
