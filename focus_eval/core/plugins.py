"""The registry that finds samplers, encoders, video readers, formats, benchmarks and models by name.

A built-in plugin is a class whose body assigns its name, in a file of the package for its kind. The registry reads
these files without importing them: listing names imports nothing, and loading a plugin imports only its own file.
Other installed packages register plugins as entry points.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from focus_eval.core.errors import MissingDependency, PluginError, UnknownName, unknown_name
from focus_eval.core.extras import install_command

T = TypeVar("T")
D = TypeVar("D")
_ROOT = Path(__file__).resolve().parents[1]
_TOP = _ROOT.name
_FILE_MODULE = "focus_eval_plugin_file_"
# Top-level package names of the third-party plugins loaded so far.
_loaded_packages = set[str]()


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin that is located but not imported.

    Args:
        name: the registered name.
        location: `module:Class`, or the path of a YAML file.
        module: the module of a built-in class; "" for anything else.
        point: the entry point of an installed package, if it is one.
    """

    name: str
    location: str
    module: str = ""
    point: EntryPoint | None = None

    def load(self) -> object:
        """Return the class, the object of the entry point, or the path of the YAML file."""
        if self.point is not None:
            return self.point.load()
        if not self.module:
            return Path(self.location)
        return getattr(importlib.import_module(self.module), self.location.partition(":")[2])

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """Class attributes with literal values, including inherited ones; {} if reading them needs an import."""
        return _facts(self.module, self.location.partition(":")[2]) if self.module else {}


class Registry(Generic[T]):
    """The plugins of one kind.

    Args:
        noun: name of the kind in messages, e.g. "sampler".
        group: the entry-point group for other packages.
        built_in: finds the plugins of this package; see `classes_in`.
        check: called with the loaded object and a label for messages; returns the object or raises `PluginError`.
        takes_files: True if `path/to/file.py:Class` may name a plugin.
        warns: True to warn, not raise, if an installed package registers a name that is taken.
    """

    def __init__(
        self,
        noun: str,
        *,
        group: str,
        built_in: Callable[[], Iterable[Plugin]],
        check: Callable[[object, str], T],
        takes_files: bool = False,
        warns: bool = False,
    ) -> None:
        self.noun = noun
        self.group = group
        self._built_in = built_in
        self._check = check
        self._takes_files = takes_files
        self._warns = warns
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """Return every name, ascending; imports no plugin.

        Raises:
            PluginError: an installed package registers a name that is taken.
        """
        return sorted(self.plugins)

    def __contains__(self, name: str) -> bool:
        return name in self.plugins

    def load(self, name: str) -> T:
        """Return the plugin `name`, importing its file and no other plugin's.

        Raises:
            UnknownName: no such plugin; the message has the nearest name, if one is near.
            MissingDependency: a package it needs is not installed; the message has the install command.
            PluginError: it cannot be loaded, or is not of this kind.
        """
        if name not in self._loaded:
            is_file = self._takes_files and ".py:" in name
            self._loaded[name] = self._from_file(name) if is_file else self._from_plugin(self.find(name))
        return self._loaded[name]

    def find(self, name: str) -> Plugin:
        """Return the plugin `name` without importing it. Raises as `load`."""
        if name in self.plugins:
            return self.plugins[name]
        if self._takes_files and name.endswith(".py"):
            classes: list[str] = []
            with suppress(OSError, SyntaxError, ValueError):  # the file is only parsed here, and may not exist
                statements = ast.parse(Path(name).read_bytes()).body
                classes = [f"{name}:{node.name}" for node in statements if isinstance(node, ast.ClassDef)]
            of_file = f" ({', '.join(classes)})" if classes else ""
            raise UnknownName(f"unknown {self.noun} {name!r}; write a {self.noun} in a file as FILE.py:Class{of_file}")
        raise unknown_name(self.noun, name, self.plugins)

    def fact(self, name: str, attribute: str, default: D) -> D:
        """Return the class attribute `attribute` of plugin `name`, or `default` if it is not of the type of `default`.

        Built-in plugins are not imported. Raises the errors of `load`.
        """
        if name in self.plugins and self.plugins[name].module:
            value: D = self.plugins[name].facts.get(attribute, default)
        else:
            value = getattr(self.load(name), attribute, default)
        return value

    @contextmanager
    def name_missing_extra(self, name: str) -> Iterator[None]:
        """Turn a `ModuleNotFoundError` of the `with` block into `MissingDependency` for plugin `name`."""
        try:
            yield
        except ModuleNotFoundError as error:
            missing = error.name or str(error)
            if missing.partition(".")[0] == _TOP:  # a missing module of focus_eval itself is a bug, not a missing extra
                raise
            extra = self.fact(name, "extra", "") if name in self.plugins and self.plugins[name].module else ""
            fix = f": {install_command(extra)}" if extra else ", which is not installed"
            raise MissingDependency(f"{self.noun} {name!r} needs {missing}{fix}") from error

    @cached_property
    def plugins(self) -> Mapping[str, Plugin]:
        """All plugins by name: built-in ones, then those of installed packages."""
        plugins: dict[str, Plugin] = {}
        for plugin in self._built_in():
            if plugin.name in plugins:
                taken_by = plugins[plugin.name].location
                raise PluginError(f"{self.noun} {plugin.name!r} ({plugin.location}): the name is taken by {taken_by}")
            plugins[plugin.name] = plugin
        for point in sorted(entry_points(group=self.group), key=lambda entry: (entry.name, entry.value)):
            if point.name not in plugins:
                plugins[point.name] = Plugin(name=point.name, location=point.value, point=point)
                continue
            problem = f"{self._label(point.name, point.value)}: the name is taken by {plugins[point.name].location}"
            if not self._warns:
                raise PluginError(f"{problem}; uninstall or rename it")
            warnings.warn(f"{problem}; rename the entry point", stacklevel=2)
        return plugins

    def clear(self) -> None:
        """Forget all plugins that were listed or loaded, so that the next use searches again."""
        self._loaded.clear()
        self.__dict__.pop("plugins", None)

    def _label(self, name: str, location: str) -> str:
        """How messages name a plugin of another package, e.g. "sampler plugin 'x' (module:Class)"."""
        return f"{self.noun} plugin {name!r} ({location})"

    def _from_plugin(self, plugin: Plugin) -> T:
        """Import `plugin` and return its checked object.

        Raises MissingDependency for a missing extra of a built-in one, and PluginError for another package's plugin
        that cannot be loaded or whose class has another `name` than its entry point.
        """
        if plugin.point is None:
            with self.name_missing_extra(plugin.name):
                return self._check(plugin.load(), f"{self.noun} {plugin.name!r} ({plugin.location})")
        label = self._label(plugin.name, plugin.location)
        try:
            loaded = plugin.load()
        except Exception as error:  # a plugin may raise anything at import; name the plugin in the error
            raise PluginError(f"{label} cannot be loaded: {type(error).__name__}: {error}") from error
        kind = self._check(loaded, label)
        own_name = getattr(kind, "name", plugin.name)
        if own_name != plugin.name:
            raise PluginError(f"{label} calls itself {own_name!r}; entry point and class must agree")
        _loaded_packages.add(plugin.point.module.partition(".")[0])
        return kind

    def _from_file(self, spec: str) -> T:
        """Run the file of `spec`, `path/to/file.py:Class`; return the checked class with its `file_digest` set.

        Raises PluginError if the file has no such class or the class's `name` is taken.
        """
        kind = self._check(_class_in_file(self.noun, spec), f"{self.noun} {spec!r}")
        name = getattr(kind, "name", "")
        if name in self.plugins:
            raise PluginError(f"{self.noun} {spec!r}: its name {name!r} is taken; give the class another `name`")
        return kind


def classes_in(
    *packages: str, base: str = "", name_of: Callable[[Mapping[str, object]], str] | None = None
) -> Callable[[], Iterator[Plugin]]:
    """Return a function that finds the named classes in the files of `packages` without importing them.

    Args:
        packages: dotted names of packages inside `focus_eval`.
        base: name of the class that each derives from; "" for any class.
        name_of: returns the registered name, given the literal attributes in a class's own body; "" if the class is
            no plugin. By default the attribute `name`.
    """

    def find() -> Iterator[Plugin]:
        """Yield a plugin per class with a literal `name` (or one by `name_of`) that derives from `base`.

        Reads source only.
        """
        files = [(package, path) for package in packages for path in sorted(_file_of(package).parent.glob("*.py"))]
        for package, path in files:
            module = f"{package}.{path.stem}"
            # Parsing is slow and most files define no plugin: skip those without a name line.
            if not _STATES_NAME.search(path.read_text(encoding="utf-8")):
                continue
            for class_name, node in _parsed(module).classes.items():
                attributes = _literals(node)
                name = attributes.get("name", "") if name_of is None else name_of(attributes)
                if isinstance(name, str) and name and (not base or _derives(module, class_name, base)):
                    yield Plugin(name=name, location=f"{module}:{class_name}", module=module)

    return find


def yaml_files(folder: Path) -> Iterator[Plugin]:
    """Yield the YAML files of `folder` as plugins, named by their stems."""
    for path in sorted(folder.glob("*.yaml")):
        yield Plugin(name=path.stem, location=str(path))


def file_modules() -> list[ModuleType]:
    """Return the loaded modules of plugin files, which another process cannot import by name."""
    return [module for name, module in sys.modules.items() if is_plugin_file(name)]


def is_plugin_file(module: str) -> bool:
    """Return True if `module` is the module name of a plugin file."""
    return module.startswith(_FILE_MODULE)


def place_in_plugin(error: BaseException, *, unless_ours: bool = False) -> tuple[str, int] | None:
    """Return path and line of the innermost call in the traceback of `error` that lies in a user's plugin, or None.

    A user's plugin is a plugin file, or a module of a package that registered a plugin which was loaded.

    Args:
        unless_ours: return None if that call led back into this package, because the mistake may then be in this
            package.
    """
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        module = frame.f_globals.get("__name__", "")
        if unless_ours and module.partition(".")[0] == "focus_eval":
            return None
        # Skip methods generated by dataclass: their code has no real file name, so no line to point at.
        path = frame.f_code.co_filename
        is_plugin = is_plugin_file(module) or module.partition(".")[0] in _loaded_packages
        if is_plugin and path == frame.f_globals.get("__file__"):
            return path, line
    return None


def class_of_file(path: str, class_name: str) -> Any:
    """Return a class of the plugin file at `path`; load the file if this process has not, as when it unpickles."""
    module = sys.modules.get(f"{_FILE_MODULE}{zlib.crc32(path.encode()):08x}")
    if module is not None and hasattr(module, class_name):
        return getattr(module, class_name)
    return _class_in_file("class", f"{path}:{class_name}")


def check_derived(loaded: object, label: str, *, base: type) -> Any:
    """Return `loaded` if it is a class derived from `base`.

    Raises:
        PluginError: it is not, or lacks a method that `base` leaves open.
    """
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        problem = f"is not a {base.__name__} class; derive it from {base.__module__}.{base.__name__}"
        raise PluginError(f"{label} {problem}")
    missing = sorted(getattr(loaded, "__abstractmethods__", ()))
    if missing:
        raise PluginError(f"{label} has no `{missing[0]}` method")
    return loaded


# Matches a line of a class body that assigns a name: `name = "focus"`, `name: ClassVar[str] = "focus"`,
# `model_id = ..`.
_STATES_NAME = re.compile(r"^    (?:name|model_id)\b[^=\n]*= *[\"']", re.MULTILINE)


@dataclass(frozen=True)
class _ModuleClasses:
    """The classes of a module, and the module that each imported name comes from."""

    classes: Mapping[str, ast.ClassDef]
    imported: Mapping[str, str]


@cache
def _parsed(module: str) -> _ModuleClasses:
    """The classes and imports at the top of `module`, read from its source without importing it; cached."""
    tree = ast.parse(_file_of(module).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    imported = {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}
    return _ModuleClasses(classes, {name: origin for name, origin in imported.items() if origin.startswith(f"{_TOP}.")})


def _file_of(module: str) -> Path:
    """The source file of a dotted `module` of this package: `__init__.py` if it is a folder."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _bases(module: str, class_name: str) -> Iterator[tuple[str, str]]:
    """Yield the base classes of a class as (module, name); the module is "" if it is not of this package."""
    source = _parsed(module)
    for node in source.classes[class_name].bases:
        if isinstance(node, ast.Name):
            yield (module if node.id in source.classes else source.imported.get(node.id, "")), node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in source.imported:
            yield f"{source.imported[node.value.id]}.{node.value.id}", node.attr


def _derives(module: str, class_name: str, base: str) -> bool:
    """True if the class derives, directly or not, from one named `base`; reads source only."""
    return any(
        name == base or (origin != "" and name in _parsed(origin).classes and _derives(origin, name, base))
        for origin, name in _bases(module, class_name)
    )


def _facts(module: str, class_name: str) -> dict[str, object]:
    """The literal class attributes by name, from the source of the class and of its bases in this package."""
    facts: dict[str, object] = {}
    for origin, name in reversed([*_bases(module, class_name)]):
        if origin and name in _parsed(origin).classes:
            facts |= _facts(origin, name)
    node = _parsed(module).classes[class_name]
    # Leave out attributes that the class redefines: the literal value in its base no longer holds for them.
    redefined = {line.name for line in node.body if isinstance(line, ast.FunctionDef)} | {
        name for name, _ in _assigned(node)
    }
    return {name: value for name, value in facts.items() if name not in redefined} | _literals(node)


def _literals(node: ast.ClassDef) -> dict[str, object]:
    """The literal values that the class body itself assigns, by attribute name."""
    values: dict[str, object] = {}
    for name, value in _assigned(node):
        with suppress(ValueError):
            values[name] = ast.literal_eval(value)
    return values


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value expression of each assignment to one name in the class body, which is read, not run."""
    for statement in node.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if isinstance(target, ast.Name):
            yield target.id, statement.value


def _imports_neighbour_file(path: Path, error: ImportError) -> bool:
    """True if the import that failed in the file at `path` names a module in its folder, or is relative."""
    module = (error.name or "").partition(".")[0]
    is_there = module != "" and any((path.parent / name).exists() for name in (f"{module}.py", module))
    return is_there or str(error).startswith("attempted relative import")


def _class_in_file(noun: str, spec: str) -> Any:
    """Run a Python file; return the class that `path/to/file.py:Class` names, with its `file_digest` set.

    Raises PluginError if there is no such file or class, or if running the file fails; `noun` names the kind of plugin.
    """
    path_text, _, class_name = spec.rpartition(":")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise PluginError(f"{noun} {spec!r}: there is no file {path}")
    # `dataclass` looks up a class's module in sys.modules, so the file must be registered there under a unique name.
    module_name = f"{_FILE_MODULE}{zlib.crc32(str(path).encode()):08x}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise PluginError(f"{noun} {spec!r}: {path} is not a Python file")
    module = sys.modules[module_name] = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # a plugin file may raise anything; name the file in the error
        lines = [place.lineno for place in traceback.extract_tb(error.__traceback__) if place.filename == str(path)]
        line = f", line {lines[-1]}," if lines else ""
        fix = ""
        if isinstance(error, ImportError) and _imports_neighbour_file(path, error):
            # The hash in a row's identity covers this file alone, so the file may not import others of its folder.
            fix = "; a plugin file imports no file beside it: move that code into it, or install both as a package"
        message = f"{noun} file {path}{line} cannot be loaded: {type(error).__name__}: {error}{fix}"
        raise PluginError(message) from error
    if not hasattr(module, class_name):
        classes = [n for n, kind in vars(module).items() if isinstance(kind, type) and kind.__module__ == module_name]
        raise PluginError(f"{noun} file {path} has no class {class_name!r}; it has {', '.join(classes) or 'none'}")
    # Authors forget to raise `version` when they edit a file, so a hash of its content is part of a row's identity.
    kind: Any = getattr(module, class_name)
    with suppress(AttributeError, TypeError):  # an object that is no class is refused later, by the registry's check
        kind.file_digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return kind
