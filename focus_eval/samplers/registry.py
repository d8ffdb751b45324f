"""Lists the samplers and makes one by name.

Ours are the classes in the modules of this package, one file each. Other packages add theirs through the
entry-point group `focus_eval.samplers`; `path/to/file.py:Class` names a class in a file nobody installed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import focus_eval.samplers
from focus_eval.core.errors import SamplerError, UnknownName, unknown_name
from focus_eval.core.options import check_names, field_types, read_options
from focus_eval.samplers.base import FrameSampler, check_class

ENTRY_POINT_GROUP = "focus_eval.samplers"
_FILE_MODULE = "focus_eval_sampler_file_"


def sampler_classes() -> dict[str, type[FrameSampler]]:
    """Return every registered sampler class by name, ascending: ours, and those of installed plugins.

    Raises:
        SamplerError: a plugin that cannot be imported, is not a sampler, or takes a name that is taken.
    """
    plugins = {name: _plugin(name) for name in _entry_points()}
    return dict(sorted({**_builtin(), **plugins}.items()))


def sampler_class(name: str) -> type[FrameSampler]:
    """Return the sampler class registered as `name`, or the class in a file named `path/to/file.py:Class`.

    Plugins load only when one of them is named.

    Raises:
        UnknownName: no such sampler; the message has the nearest name.
        SamplerError: a plugin or file that cannot be used, with the reason.
    """
    if ".py:" in name:
        return _from_file(name)
    points = _entry_points()
    if name in _builtin():
        return _builtin()[name]
    if name in points:
        return _plugin(name)
    if name.endswith(".py"):
        raise UnknownName(f"unknown sampler {name!r}; write a sampler in a file as FILE.py:Class")
    raise unknown_name("sampler", name, [*_builtin(), *points])


def sampler_name(name: str) -> str:
    """Return what rows and tables call the sampler `name`: of `path/to/peaks.py:Peaks` the name its class gives.

    Raises:
        SamplerError: a file that cannot be used, with the reason.
    """
    return sampler_class(name).name if ".py:" in name else name


def make_sampler(name: str, **options: Any) -> FrameSampler:
    """Return the sampler `name` (see `sampler_class`) with `options`, the rest at their defaults.

    Raises:
        UnknownName: no such sampler or option; the message has the nearest name.
        InvalidInput: an option of the wrong type or outside its range.
        SamplerError: a plugin or file that cannot be used.
    """
    kind = sampler_class(name)
    check_names(f"sampler {kind.name!r}", field_types(kind), options)
    return kind(**options)


def parse_options(name: str, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of sampler `name` that came as text, as on a command line, in their declared types.

    `parse_options("focus", {"alpha": "0.5"})` is `{"alpha": 0.5}`; ranges are checked by `make_sampler`.

    Raises:
        UnknownName: no such sampler or option.
        InvalidInput: a text that is no value of the option's type.
    """
    kind = sampler_class(name)
    return read_options(f"sampler {kind.name!r}", field_types(kind), texts)


@cache
def _builtin() -> dict[str, type[FrameSampler]]:
    classes: dict[str, type[FrameSampler]] = {}
    for found in pkgutil.iter_modules(focus_eval.samplers.__path__):
        module = importlib.import_module(f"{focus_eval.samplers.__name__}.{found.name}")
        for value in vars(module).values():
            is_ours = (
                isinstance(value, type) and issubclass(value, FrameSampler) and value.__module__ == module.__name__
            )
            if is_ours and not inspect.isabstract(value):
                classes[_checked(value, f"{module.__name__}:{value.__name__}").name] = value
    return classes


@cache
def _entry_points() -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in points or point.name in _builtin():
            raise SamplerError(
                f"sampler plugin {point.name!r} ({point.value}): the name is taken; uninstall or rename it"
            )
        points[point.name] = point
    return points


@cache
def _plugin(name: str) -> type[FrameSampler]:
    point = _entry_points()[name]
    label = f"sampler plugin {name!r} ({point.value})"
    try:
        loaded = point.load()
    except Exception as error:  # whatever a plugin raises at import is raised on under its name
        raise SamplerError(f"{label} cannot be loaded: {type(error).__name__}: {error}") from error
    kind = _checked(loaded, label)
    if kind.name != name:
        raise SamplerError(f"{label} calls itself {kind.name!r}; entry point and class must agree")
    return kind


def sampler_file_modules() -> list[ModuleType]:
    """Return the modules of the sampler files that were loaded: another process can import none of them by name."""
    return [module for name, module in sys.modules.items() if name.startswith(_FILE_MODULE)]


@cache
def _from_file(spec: str) -> type[FrameSampler]:
    path_text, _, class_name = spec.rpartition(":")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise SamplerError(f"sampler {spec!r}: there is no file {path}")
    # Dataclasses look their module up in sys.modules, so the file needs an entry there under a name of its own.
    module_name = f"{_FILE_MODULE}{zlib.crc32(str(path).encode()):08x}"
    found = importlib.util.spec_from_file_location(module_name, path)
    if found is None or found.loader is None:
        raise SamplerError(f"sampler {spec!r}: {path} is not a Python file")
    module = sys.modules[module_name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:  # whatever the file raises is raised on under its path
        lines = [place.lineno for place in traceback.extract_tb(error.__traceback__) if place.filename == str(path)]
        where = f", line {lines[-1]}," if lines else ""
        raise SamplerError(f"sampler file {path}{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(module, class_name):
        classes = [name for name, kind in vars(module).items() if getattr(kind, "__module__", "") == module_name]
        raise SamplerError(f"sampler file {path} has no class {class_name!r}; it has {', '.join(classes) or 'none'}")
    kind = _checked(getattr(module, class_name), f"sampler {spec!r}")
    if kind.name in _builtin() or kind.name in _entry_points():
        raise SamplerError(f"sampler {spec!r}: its name {kind.name!r} is taken; give the class another `name`")
    # Nobody raises the version of a file at every edit: its content is part of what it chooses.
    kind.file_digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return kind


def _checked(kind: Any, label: str) -> type[FrameSampler]:
    if not (isinstance(kind, type) and issubclass(kind, FrameSampler)):
        raise SamplerError(f"{label} is not a FrameSampler class; derive it from focus_eval.samplers.base.FrameSampler")
    if inspect.isabstract(kind):
        raise SamplerError(f"{label} has no `choose` method")
    check_class(kind, label)
    if "name" not in vars(kind) or not hasattr(kind, "source"):
        raise SamplerError(f"{label} needs class attributes `name` (its own) and `source`")
    needs_value = [
        declared.name for declared in fields(kind) if declared.default is declared.default_factory is MISSING
    ]
    if "__dataclass_fields__" not in vars(kind) or needs_value:
        raise SamplerError(f"{label} must be a frozen dataclass whose options all have defaults")
    return kind
