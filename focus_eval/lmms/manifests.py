"""The models that lmms-eval finds in this package.

Read by lmms-eval at its own start through the entry-point group `lmms_eval.models`, so this file stays light: one
that raises would drop the plugins after it with only a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest


class Paths(NamedTuple):
    """Where a model's class for lmms-eval's simple requests is, and the one for its chat requests."""

    simple: str | None = None
    chat: str | None = None


_HERE = "focus_eval.lmms"

MODELS: dict[str, Paths] = {
    "focus_qwen2_vl": Paths(simple=f"{_HERE}.models.qwen_vl.FocusQwen2VL"),
    "focus_qwen2_5_vl": Paths(f"{_HERE}.models.qwen_vl.FocusQwen2_5VL", f"{_HERE}.models.qwen_vl.FocusQwen2_5VLChat"),
    "focus_qwen3_vl": Paths(f"{_HERE}.models.qwen_vl.FocusQwen3VL", f"{_HERE}.models.qwen_vl.FocusQwen3VLChat"),
    "focus_llava_video": Paths(simple=f"{_HERE}.llava_video.wrapper.FocusLlavaVideo"),
    "focus_llava_onevision": Paths(simple=f"{_HERE}.models.llava_hf.FocusLlavaOnevision"),
    "focus_huggingface": Paths(chat=f"{_HERE}.models.huggingface.FocusHuggingface"),
    "focus_vllm": Paths(chat=f"{_HERE}.models.vllm.FocusVLLM"),
    "focus_zero_shot": Paths(simple=f"{_HERE}.models.zero_shot.FocusZeroShot"),
    "focus_gpt4o": Paths(f"{_HERE}.models.openai.FocusGPT4o", f"{_HERE}.models.openai.FocusGPT4oChat"),
}


def MANIFESTS() -> list[ModelManifest]:
    """Return the manifests; a function, because importing lmms-eval here would import this module again."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return [
        ModelManifest(model_id=name, simple_class_path=paths.simple, chat_class_path=paths.chat)
        for name, paths in MODELS.items()
    ]
