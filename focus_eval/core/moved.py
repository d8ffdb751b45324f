"""Finds modules of version 0.2 by the names that they had, for plugins of others; leaves after version 0.3."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

MOVED_PACKAGES = {
    "samplers": "keyframes.samplers",
    "video": "keyframes.video",
    "encoders": "keyframes.encoders",
    "llms": "keyframes.llms",
    "pipeline": "keyframes.pipeline",
    "benchmarks": "bench.benchmarks",
    "lmms": "bench.lmms",
    "matrix": "bench.matrix",
    "report": "bench.report",
    "imports": "external.imports",
}
_HOUSE = "focus_eval"


class MovedModules(MetaPathFinder, Loader):
    """Imports `focus_eval.encoders.base` as the module `focus_eval.keyframes.encoders.base`, with a warning."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for a module that moved; None for any other name."""
        house, _, rest = name.partition(".")
        package, dot, module = rest.partition(".")
        if house != _HOUSE or package not in MOVED_PACKAGES:
            return None
        present_name = f"{_HOUSE}.{MOVED_PACKAGES[package]}{dot}{module}"
        if find_spec(present_name) is None:
            return None
        return ModuleSpec(name, self, origin=present_name, is_package=not module)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its present name, so that both names give the same classes."""
        present_name = str(spec.origin)
        warnings.warn(f"{spec.name} is {present_name} now; the old name leaves after version 0.3", FutureWarning, 2)
        module = importlib.import_module(present_name)
        # The import system overwrites the spec of what it loads.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it was executed under its present name."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def find_moved_modules() -> None:
    """Install the finder once a process, first: else a moved package would load its modules a second time."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
