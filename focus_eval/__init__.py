"""focus-eval: frame samplers for long-video question answering, measured to the frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from focus_eval.core.errors import FocusEvalError
from focus_eval.core.types import ClipReport, Selection, VideoInfo
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.samplers.registry import make_sampler

if TYPE_CHECKING:
    from focus_eval.pipeline.api import select_keyframes

__version__ = "0.2.0"
__all__ = [
    "Choice",
    "ClipReport",
    "FocusEvalError",
    "FrameSampler",
    "Selection",
    "SelectionRequest",
    "VideoInfo",
    "make_sampler",
    "select_keyframes",
]


def __getattr__(name: str) -> Any:
    if name == "select_keyframes":
        from focus_eval.pipeline.api import select_keyframes

        return select_keyframes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
