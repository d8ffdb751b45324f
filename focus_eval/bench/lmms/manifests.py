"""Lists the models that lmms-eval finds through this package: our own and those of other packages.

lmms-eval imports this file when it starts, through the entry-point group `lmms_eval.models`. Keep its imports few: if
the import failed, lmms-eval would print only a warning and skip the plugins after this one too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from focus_eval.core.plugins import Registry, check_derived, classes_in

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

    from focus_eval.bench.lmms.adapter import FrameAdapter

T = TypeVar("T")
CHAT_SUFFIX = ".chat"


class Paths(NamedTuple):
    """Import paths of a model's classes for simple and for chat requests; None where the model has no such class."""

    simple: str | None = None
    chat: str | None = None


def _name(attributes: Mapping[str, object]) -> str:
    """The `model_id` in a class body, with ".chat" added if `is_simple` is False; "" without one."""
    name = str(attributes.get("model_id", ""))
    return name + CHAT_SUFFIX if name and attributes.get("is_simple") is False else name


def _check(loaded: object, label: str) -> type[FrameAdapter]:
    """The loaded class if it is a FrameAdapter; raises PluginError otherwise."""
    from focus_eval.bench.lmms.adapter import FrameAdapter

    adapter: type[FrameAdapter] = check_derived(loaded, label, base=FrameAdapter)
    return adapter


# Another package adds a model by entry points in the group `focus_eval.models`: one for its class for simple requests,
# one for its class for chat requests.
MODELS: Registry[type[FrameAdapter]] = Registry(
    "model",
    group="focus_eval.models",
    built_in=classes_in(
        "focus_eval.bench.lmms.models", "focus_eval.bench.lmms.llava_video", base="FrameAdapter", name_of=_name
    ),
    check=_check,
    warns=True,
)


def stock_name(model: str) -> str:
    """Return lmms-eval's name of the wrapper behind our `model`; "" for an unknown model."""
    return str(_fact(model, "stock_name", ""))


def packages_of(model: str) -> tuple[str, ...]:
    """Return the packages, beside transformers and lmms-eval, whose versions can change an answer of `model`."""
    packages: tuple[str, ...] = ()
    return tuple(_fact(model, "packages", packages))


def _fact(model: str, attribute: str, default: T) -> T:
    """A class attribute of `model`, from its simple class or else its chat class; `default` if there is none.

    No class is imported.
    """
    # Some models have a simple class only, others a chat class only.
    name = next((name for name in (model, model + CHAT_SUFFIX) if name in MODELS), "")
    fact: T = MODELS.fact(name, attribute, default) if name else default
    return fact


def known_models() -> dict[str, Paths]:
    """Return the class paths of our models and of those registered under `focus_eval.models`, by model name.

    The class of an entry point has the bases `FrameAdapter` and then an lmms-eval wrapper. An entry point with the name
    MODEL.chat gives the class for chat requests to MODEL. No class is imported here. If another package uses one of our
    names, our model keeps the name and a warning is printed: an error would hide all our models from lmms-eval.
    """
    built_in_names = {plugin.name.removesuffix(CHAT_SUFFIX) for plugin in MODELS.plugins.values() if plugin.module}
    paths_by_model: dict[str, Paths] = {}
    for plugin in MODELS.plugins.values():
        name = plugin.name.removesuffix(CHAT_SUFFIX)
        if name in built_in_names and not plugin.module:
            message = f"model plugin {plugin.name!r} ({plugin.location}): the name {name!r} is taken"
            warnings.warn(f"{message}; rename the entry point", stacklevel=2)
            continue
        kind = "chat" if plugin.name.endswith(CHAT_SUFFIX) else "simple"
        # lmms-eval splits a class path at its last dot, where entry points have a colon.
        paths_by_model[name] = paths_by_model.get(name, Paths())._replace(**{kind: plugin.location.replace(":", ".")})
    return paths_by_model


def MANIFESTS() -> list[ModelManifest]:
    """Return one lmms-eval manifest per model. A function, as importing lmms-eval at the top would be circular."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return [
        ModelManifest(model_id=name, simple_class_path=paths.simple, chat_class_path=paths.chat)
        for name, paths in known_models().items()
    ]
