"""The models that lmms-eval finds through this package: ours, and those that other packages register.

Read by lmms-eval at its own start through the entry-point group `lmms_eval.models`, so this file stays light: one
that raises would drop the plugins after it with only a warning.
"""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest


class Paths(NamedTuple):
    """Where a model's class for lmms-eval's simple requests is, and the one for its chat requests."""

    simple: str | None = None
    chat: str | None = None


# A package registers a model here, one line for the class of each kind of request.
ENTRY_POINT_GROUP = "focus_eval.models"
CHAT_SUFFIX = ".chat"
_HERE = "focus_eval.lmms"

MODELS: dict[str, Paths] = {
    "focus_qwen2_vl": Paths(simple=f"{_HERE}.models.qwen_vl.FocusQwen2VL"),
    "focus_qwen2_5_vl": Paths(f"{_HERE}.models.qwen_vl.FocusQwen2_5VL", f"{_HERE}.models.qwen_vl.FocusQwen2_5VLChat"),
    "focus_qwen3_vl": Paths(f"{_HERE}.models.qwen_vl.FocusQwen3VL", f"{_HERE}.models.qwen_vl.FocusQwen3VLChat"),
    "focus_qwen3_5": Paths(f"{_HERE}.models.qwen_vl.FocusQwen3_5", f"{_HERE}.models.qwen_vl.FocusQwen3_5Chat"),
    "focus_llava_onevision1_5": Paths(chat=f"{_HERE}.models.llava_onevision1_5.FocusLlavaOnevision1_5"),
    "focus_llava_video": Paths(simple=f"{_HERE}.llava_video.wrapper.FocusLlavaVideo"),
    "focus_llava_onevision": Paths(simple=f"{_HERE}.models.llava_hf.FocusLlavaOnevision"),
    "focus_huggingface": Paths(chat=f"{_HERE}.models.huggingface.FocusHuggingface"),
    "focus_vllm": Paths(chat=f"{_HERE}.models.vllm.FocusVLLM"),
    "focus_vllm_chat": Paths(chat=f"{_HERE}.models.vllm.FocusVLLMChat"),
    "focus_zero_shot": Paths(simple=f"{_HERE}.models.zero_shot.FocusZeroShot"),
    "focus_gpt4o": Paths(f"{_HERE}.models.openai.FocusGPT4o", f"{_HERE}.models.openai.FocusGPT4oChat"),
}


def known_models() -> dict[str, Paths]:
    """Return the models by name: ours, and those that installed packages register under `focus_eval.models`.

    An entry point names a class that puts `FrameAdapter` before an lmms-eval wrapper; a name that ends in ".chat" is
    the class for chat requests of the model before it. Nothing is imported here. A name that is ours stays ours, with a
    warning: an error would take all models of this package from lmms-eval.
    """
    found = dict(MODELS)
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        name = point.name.removesuffix(CHAT_SUFFIX)
        if name in MODELS:
            warnings.warn(f"model {name!r} of {point.value}: the name is taken; rename the entry point", stacklevel=2)
            continue
        kind = "chat" if point.name.endswith(CHAT_SUFFIX) else "simple"
        # lmms-eval splits a class path at its last dot; an entry point has a colon there.
        found[name] = found.get(name, Paths())._replace(**{kind: point.value.replace(":", ".")})
    return found


def MANIFESTS() -> list[ModelManifest]:
    """Return the manifests; a function, because importing lmms-eval here would import this module again."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return [
        ModelManifest(model_id=name, simple_class_path=paths.simple, chat_class_path=paths.chat)
        for name, paths in known_models().items()
    ]
