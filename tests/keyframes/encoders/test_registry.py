"""A scorer is made by name, and what is wrong with a name, an option or a plugin is said."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from focus_eval.core.errors import InvalidInput, MissingDependency, PluginError, UnknownName
from focus_eval.core.options import declared_types
from focus_eval.core.plugins import Plugin
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.registry import ENCODERS, make_encoder, read_encoder


class Toy(Encoder):
    """A plugin: relevance is a constant."""

    name = "toy"
    reads_frames = False

    def __init__(
        self,
        *,
        level: float = 0.5,
        depth: int | None = 3,
        folder: Path | None = None,
        mode: Literal["low", "high"] = "low",
        loud: bool = False,
        label: str = "",
    ) -> None:
        self.revision = f"{level!r} {depth!r} {folder!r} {mode!r} {loud!r} {label!r}"
        self.level = level

    def relevance_of(self, video, frames, query):
        return np.full(len(frames), self.level)


class OfTheVersionBefore:
    """A plugin without the base class, as it was written for version 0.1."""

    name, revision = "bad", "1"

    def relevance_of(self, video, frames, query):
        return np.full(len(frames), 0.5)

    def close(self):
        pass


class NoRevision(Encoder):
    name = "bad"


@pytest.fixture
def plugins(monkeypatch, install_plugins):
    """A function from {name: "module:attribute"} that makes them the installed plugins of this test."""
    monkeypatch.setitem(sys.modules, "toy_plugin", sys.modules[__name__])
    return partial(install_plugins, ENCODERS)


def test_our_scorers_are_there():
    assert {"offline", "recorded", "blip", "clip", "siglip", "longclip"} <= set(ENCODERS.names())


def test_an_unknown_scorer_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"unknown encoder 'offlin'; did you mean 'offline'\?"):
        make_encoder("offlin")


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"option of encoder 'offline': 'n_clases'; did you mean 'n_classes'\?"):
        make_encoder("offline", n_clases=3)


def test_options_are_the_keywords_of_the_constructor():
    assert list(declared_types(ENCODERS.load("offline"))) == ["n_classes", "centred", "size"]
    assert make_encoder("offline", n_classes=3).n_classes == 3


def test_a_plugin_is_made_by_its_name(plugins):
    plugins(toy="toy_plugin:Toy")
    assert "toy" in ENCODERS.names()
    assert make_encoder("toy", level=0.25).relevance_of(Path("a"), np.arange(2), "q").tolist() == [0.25, 0.25]


def test_strings_of_a_command_line_become_what_the_option_is(plugins):
    plugins(toy="toy_plugin:Toy")
    options = {"level": "1", "depth": "none", "folder": "a/b", "mode": "high", "loud": "true", "label": "12"}
    expected = {"level": 1.0, "depth": None, "folder": Path("a/b"), "mode": "high", "loud": True, "label": "12"}
    assert read_encoder("toy", options) == ("toy", expected)
    assert read_encoder("toy:depth=7", {}) == ("toy", {"depth": 7})
    assert read_encoder("toy", {"level": 0.5, "depth": 2}) == ("toy", {"level": 0.5, "depth": 2})


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("level", "much", "a finite number"),
        ("depth", "1.5", "an integer or none"),
        ("mode", "middle", "low or high"),
        ("loud", "maybe", "true or false"),
        ("loud", "yes", "true or false"),
        ("loud", 1, "true or false"),
        ("depth", 1.5, "an integer or none"),
    ],
)
def test_a_string_of_another_kind_is_refused_by_option(plugins, option, text, message):
    plugins(toy="toy_plugin:Toy")
    with pytest.raises(InvalidInput, match=f"option '{option}' of encoder 'toy' must be {message}, got {text!r}"):
        make_encoder("toy", **{option: text})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a_module_nobody_has:Toy", "encoder plugin 'bad' .* cannot be loaded: ModuleNotFoundError: No module named"),
        ("toy_plugin:Missing", "encoder plugin 'bad' .* cannot be loaded"),
        ("toy_plugin:np", "encoder plugin 'bad' .* derive it from focus_eval.keyframes.encoders.base.Encoder"),
        (
            "toy_plugin:OfTheVersionBefore",
            "encoder plugin 'bad' .* derive it from focus_eval.keyframes.encoders.base.Encoder",
        ),
        ("toy_plugin:NoRevision", "encoder 'bad': .*NoRevision has no name or no revision"),
    ],
)
def test_a_broken_plugin_raises_and_says_which(plugins, value, message):
    plugins(bad=value, toy="toy_plugin:Toy")
    with pytest.raises(PluginError, match=message):
        make_encoder("bad")
    assert make_encoder("toy").level == 0.5


def test_a_plugin_cannot_take_a_name_of_ours(plugins):
    plugins(offline="toy_plugin:Toy")
    with pytest.raises(PluginError, match=r"encoder plugin 'offline' .*: the name is taken"):
        ENCODERS.names()


def test_a_missing_extra_is_named_with_the_install_command(monkeypatch):
    def absent(plugin):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    ENCODERS.clear()
    monkeypatch.setattr(Plugin, "load", absent)
    with pytest.raises(MissingDependency, match=r"encoder 'clip' needs .*: pip install .*\[encoders\]\""):
        make_encoder("clip")


def test_names_and_a_made_offline_scorer_import_no_network():
    code = (
        "import sys; from focus_eval.keyframes.encoders.registry import ENCODERS, make_encoder; ENCODERS.names();"
        "print(make_encoder('offline').revision); assert not {'torch', 'timm', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
