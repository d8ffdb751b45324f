"""focus-eval: frame samplers for long-video question answering, measured to the frame.

The names below are the public surface; every other module is private and may change without notice.
"""

from __future__ import annotations

import logging
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from focus_eval.bench.report.recall import recall
    from focus_eval.bench.report.run import load_run
    from focus_eval.core import errors
    from focus_eval.core.options import option
    from focus_eval.core.types import Selection, VideoInfo
    from focus_eval.keyframes.api import select_keyframes
    from focus_eval.keyframes.encoders.registry import make_encoder
    from focus_eval.keyframes.samplers.base import AskingSampler, Choice, FrameSampler, SelectionRequest
    from focus_eval.keyframes.samplers.ledger import Ledger
    from focus_eval.keyframes.samplers.registry import make_sampler
    from focus_eval.keyframes.samplers.scanning import ScanningSampler
    from focus_eval.keyframes.video import open_video

_ROOMS = ("core", "keyframes", "bench", "lab", "external", "cli", "__main__")


class _FormerNames:
    """Finds modules of version 0.2 under their former names; first, else a moved package loads its modules twice."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return a spec for a module's name in version 0.2; None leaves the name to Python."""
        package, _, rest = name.partition(".")
        if package != __name__ or rest.partition(".")[0] in _ROOMS:
            return None
        from focus_eval.core.moved import find_moved

        return find_moved(name)


if _FormerNames not in sys.meta_path:
    sys.meta_path.insert(0, cast(Any, _FormerNames))

# Whoever uses the package decides what of its log is shown; without a handler Python prints warnings.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.2.0"
__all__ = [
    "AskingSampler",
    "Choice",
    "FrameSampler",
    "Ledger",
    "ScanningSampler",
    "Selection",
    "SelectionRequest",
    "VideoInfo",
    "errors",
    "load_run",
    "make_encoder",
    "make_sampler",
    "open_video",
    "option",
    "recall",
    "select_keyframes",
]
# Loaded at first use, so that `import focus_eval` takes milliseconds.
_HOMES = {
    "AskingSampler": "keyframes.samplers.base",
    "Choice": "keyframes.samplers.base",
    "FrameSampler": "keyframes.samplers.base",
    "Ledger": "keyframes.samplers.ledger",
    "ScanningSampler": "keyframes.samplers.scanning",
    "Selection": "core.types",
    "SelectionRequest": "keyframes.samplers.base",
    "VideoInfo": "core.types",
    "load_run": "bench.report.run",
    "make_encoder": "keyframes.encoders.registry",
    "make_sampler": "keyframes.samplers.registry",
    "open_video": "keyframes.video",
    "option": "core.options",
    "recall": "bench.report.recall",
    "select_keyframes": "keyframes.api",
}
# Public in the version before; each still works in this one, with a warning that says what to write.
_DEPRECATED = {
    "ClipReport": ("core.types", "it is private"),
    "FocusEvalError": ("core.errors", "write focus_eval.errors.FocusEvalError"),
}


def __getattr__(name: str) -> Any:
    """Return a public name, imported at first use; a deprecated one warns."""
    if name == "errors":
        return import_module("focus_eval.core.errors")
    if name in _DEPRECATED:
        home, instead = _DEPRECATED[name]
        warnings.warn(f"focus_eval.{name} goes after version 0.3: {instead}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(f"focus_eval.{home}"), name)
    if name in _HOMES:
        return getattr(import_module(f"focus_eval.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, sorted."""
    return sorted([*__all__, "__version__"])
