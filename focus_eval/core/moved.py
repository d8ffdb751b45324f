"""Finds modules of version 0.2 by the names that they had, for plugins of others; leaves after version 0.3."""

from __future__ import annotations

import importlib
import warnings
from importlib.abc import Loader
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


def find_moved(name: str) -> ModuleSpec | None:
    """Return a spec for the former name of a module that moved; None for any other name.

    `focus_eval.encoders.base` gives the module `focus_eval.keyframes.encoders.base`, with a warning.
    """
    house, _, rest = name.partition(".")
    package, dot, module = rest.partition(".")
    if package not in MOVED_PACKAGES:
        return None
    present_name = f"{house}.{MOVED_PACKAGES[package]}{dot}{module}"
    if find_spec(present_name) is None:
        return None
    return ModuleSpec(name, _MovedLoader(), origin=present_name, is_package=not module)


class _MovedLoader(Loader):
    """Gives a module under its present name, so that both names give the same classes."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        present_name = str(spec.origin)
        warnings.warn(f"{spec.name} is {present_name} now; the old name leaves after version 0.3", FutureWarning, 2)
        module = importlib.import_module(present_name)
        # The import system overwrites the spec of what it loads: `exec_module` puts the real one back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it was executed under its present name."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state
