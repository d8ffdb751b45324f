"""focus-eval: frame samplers for long-video question answering, measured to the frame.

The names below are the public surface; every other module is private and may change without notice.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focus_eval.bench.report.recall import recall
    from focus_eval.bench.report.run import load_run
    from focus_eval.core import errors
    from focus_eval.core.options import option
    from focus_eval.core.types import Selection, VideoInfo
    from focus_eval.keyframes.encoders.base import Encoder
    from focus_eval.keyframes.encoders.registry import make_encoder
    from focus_eval.keyframes.samplers.base import AskingSampler, Choice, FrameSampler, SelectionRequest
    from focus_eval.keyframes.samplers.ledger import Ledger
    from focus_eval.keyframes.samplers.registry import make_sampler
    from focus_eval.keyframes.samplers.scanning import ScanningSampler
    from focus_eval.keyframes.select import KeyframeSelector, select_keyframes
    from focus_eval.keyframes.selection import VideoSelection
    from focus_eval.keyframes.video import open_video

# A library leaves logging to its caller; without a handler Python would print warnings to stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.2.0"
__all__ = [
    "AskingSampler",
    "Choice",
    "Encoder",
    "FrameSampler",
    "KeyframeSelector",
    "Ledger",
    "ScanningSampler",
    "Selection",
    "SelectionRequest",
    "VideoInfo",
    "VideoSelection",
    "errors",
    "load_run",
    "make_encoder",
    "make_sampler",
    "open_video",
    "option",
    "recall",
    "select_keyframes",
]
# Modules of public names, imported at first use, so that `import focus_eval` takes only milliseconds.
_HOMES = {
    "AskingSampler": "keyframes.samplers.base",
    "Choice": "keyframes.samplers.base",
    "Encoder": "keyframes.encoders.base",
    "FrameSampler": "keyframes.samplers.base",
    "KeyframeSelector": "keyframes.select",
    "Ledger": "keyframes.samplers.ledger",
    "ScanningSampler": "keyframes.samplers.scanning",
    "Selection": "core.types",
    "SelectionRequest": "keyframes.samplers.base",
    "VideoInfo": "core.types",
    "VideoSelection": "keyframes.selection",
    "load_run": "bench.report.run",
    "make_encoder": "keyframes.encoders.registry",
    "make_sampler": "keyframes.samplers.registry",
    "open_video": "keyframes.video",
    "option": "core.options",
    "recall": "bench.report.recall",
    "select_keyframes": "keyframes.select",
}


def __getattr__(name: str) -> object:
    """Return a public name, imported at first use."""
    if name == "errors":
        return import_module("focus_eval.core.errors")
    if name in _HOMES:
        return getattr(import_module(f"focus_eval.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, sorted."""
    return sorted([*__all__, "__version__"])
