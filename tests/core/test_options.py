"""A boolean is true or false through every door."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from focus_eval.bench.answering.replay import ReplayedSelections
from focus_eval.bench.lmms.arguments import AdapterOptions, make_chooser
from focus_eval.bench.matrix.config import load_matrix, read_yaml_value
from focus_eval.core.errors import InvalidInput, nearest
from focus_eval.core.options import parse_assignments, read_options
from focus_eval.keyframes.encoders.registry import read_encoder
from focus_eval.keyframes.samplers.registry import make_sampler

NEITHER = ["yes", "no", "on", "off", "1", "0", "ja"]
MATRIX = """
benchmarks: [{{name: photo_events, benchmark: photo_events, annotations: a.json}}]
encoders: [offline]
samplers: [{{sampler: qframe, options: {{fixed_frames: {boolean}}}}}]
k: [4]
{rest}
"""


def called(*arguments):
    return subprocess.run([sys.executable, "-m", "focus_eval", *map(str, arguments)], capture_output=True, text=True)


def write_matrix(folder, boolean="true", more_yaml=""):
    file = folder / "matrix.yaml"
    file.write_text(MATRIX.format(boolean=boolean, rest=more_yaml))
    return file


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_true_and_false_are_read_through_every_door(tmp_path, text, value):
    parsed = parse_assignments([f"fixed_frames={text}"])
    assert make_sampler("qframe", **parsed).fixed_frames is value
    assert make_sampler(f"qframe:fixed_frames={text}").fixed_frames is value
    assert read_encoder("offline", {"centred": text})[1] == {"centred": value}
    assert read_yaml_value(text) is value
    options = load_matrix(write_matrix(tmp_path, text)).samplers[0].options
    assert options == {"fixed_frames": value}


@pytest.mark.parametrize("text", NEITHER)
def test_nothing_else_is_a_boolean_through_any_door(tmp_path, text):
    message = "must be true or false"
    with pytest.raises(InvalidInput, match=message):
        make_sampler("qframe", fixed_frames=text)
    with pytest.raises(InvalidInput, match=message):
        read_encoder("offline", {"centred": text})
    options = AdapterOptions(sampler="qframe", sampler_options={"fixed_frames": text}, encoder="offline")
    with pytest.raises(InvalidInput, match=message):
        make_chooser(options, frames=4)
    with pytest.raises(InvalidInput, match=message):
        ReplayedSelections(tmp_path, frames=4, options={"allow_missing": text})
    assert not isinstance(read_yaml_value(text), bool)
    option = load_matrix(write_matrix(tmp_path, text)).samplers[0].options["fixed_frames"]
    with pytest.raises(InvalidInput, match=message):
        make_sampler("qframe", fixed_frames=option)
    with pytest.raises(InvalidInput, match=r"matrix\.yaml:6: share_frames: must be true or false"):
        load_matrix(write_matrix(tmp_path, more_yaml=f"share_frames: {text}"))


def test_a_number_is_no_boolean_and_a_fraction_no_count():
    with pytest.raises(InvalidInput, match="true or false"):
        read_options("x", {"loud": bool}, {"loud": 1})
    with pytest.raises(InvalidInput, match="an integer or none"):
        read_options("x", {"depth": int | None}, {"depth": 2.5})
    assert read_options("x", {"depth": int | None, "level": float}, {"depth": None, "level": 2}) == {
        "depth": None,
        "level": 2.0,
    }


def test_the_version_is_the_packages():
    assert called("--version").stdout == f"focus-eval {version('focus-eval')}\n"


@pytest.mark.upper_rooms
def test_brackets_of_a_help_text_are_printed():
    assert "[[start, stop], ..]" in " ".join(called("recall", "--help").stdout.split())


@pytest.mark.parametrize(
    ("name", "suggestion"), [("focs", "'focus'"), ("wfs", "'wfs_sb'"), ("best", ""), ("foo", ""), ("", "")]
)
def test_only_a_near_name_is_suggested(name, suggestion):
    assert nearest(name, ["focus", "focus_gop", "bolt", "subquestions", "wfs_sb"]) == (
        suggestion and f"; did you mean {suggestion}?"
    )
