"""Does every registered sampler keep the promises all of them make, and does the suite see one that does not?

The suite is the one that `focus-eval check` runs on a sampler of anybody.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus_eval import VideoInfo, make_sampler
from focus_eval.cli import app
from focus_eval.core.errors import EncoderError, FocusEvalError, PluginError, UnknownName
from focus_eval.keyframes.samplers import base
from focus_eval.keyframes.samplers.base import FlatSource, derived_rng
from focus_eval.keyframes.samplers.registry import sampler_class, sampler_classes
from focus_eval.lab import contract
from focus_eval.lab.contract import (
    PROMISES,
    SCAN_COST,
    Case,
    broken_promises,
    check_sampler,
    fingerprints,
    first_difference,
    select,
)
from focus_eval.lab.subprocess_sampler import make_in_subprocess

NAMES = list(sampler_classes())
PULLING = [name for name, kind in sampler_classes().items() if kind.needs_encoder and name != "scan_only"]
COUNTED_AHEAD = [name for name in NAMES if name not in ("focus_iterative", "focus_released")]

# Every sampler of this file breaks what stands beside it, and nothing that is not a consequence.
BROKEN_FILE = Path(__file__).with_name("broken_samplers.py")
BROKEN = {
    "OldSignature": {"class"},
    "ReturnsAList": {"choice"},
    "Seconds": {"integers"},
    "OnePastTheEnd": {"range"},
    "RepeatsInShortVideos": {"repeats"},
    "OneAFewSeconds": {"count"},
    "FailsOnOneFrame": {"runs"},
    "DividesByTheSpread": {"runs"},
    "PullsTwice": {"ledger"},
    "GoesRoundTheLedger": {"ledger"},
    "CatchesTheLedger": {"budget"},
    "GlobalGenerator": {"generator", "determinism", "order"},
    "OwnGenerator": {"determinism", "order"},
    "Remembers": {"order"},
    "HashesText": {"process"},
    "DrawsWhenImported": {"process"},
    "FirstQuestionDiffers": {"process"},
    "SeedsTorch": {"generator"},
    "EmbedsUndeclared": {"declares"},
    "Enlarges": {"runs"},
    "ShowsFourTimesAsMany": {"count"},
    "Exits": {"runs"},
    "PromisesFewPulls": {"planned"},
    "PullsUndeclared": {"declares"},
    "FactsOfNumpy": {"facts"},
    "LoopsOverFrames": {"time"},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_registered_sampler_keeps_every_promise(name):
    verdict = check_sampler(name, with_second_start=False)
    assert verdict.broken == ()
    assert verdict.not_tried == ("process",)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_second_process_gives_the_frames_of_this_one(name):
    assert (
        first_difference(make_in_subprocess(name, has_other_hash_seed=True), fingerprints(make_sampler(name))) is None
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(
    n_frames=st.integers(1, 1500),
    fps=st.floats(0.05, 500.0),
    k=st.integers(1, 200),
    seed=st.integers(0, 2**32 - 1),
    pattern=st.sampled_from(["events", "ties", "flat 0.5"]),
)
def test_promises_hold_for_any_video(name, n_frames, fps, k, seed, pattern):
    assert broken_promises(make_sampler(name), Case(n_frames, k, fps, pattern, seed)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "promises"), BROKEN.items())
def test_the_suite_sees_what_a_broken_sampler_breaks(kind, promises):
    # A slow machine fails nobody else: only the loop over all frames is given little time.
    verdict = check_sampler(f"{BROKEN_FILE}:{kind}", seconds_allowed=1.5 if "time" in promises else 100)
    assert {item.promise for item in verdict.broken} == promises


def test_every_broken_sampler_is_tried_and_a_sound_one_passes():
    kinds = {node.name for node in ast.parse(BROKEN_FILE.read_text()).body if isinstance(node, ast.ClassDef)}
    assert kinds == {*BROKEN, "Fine"}
    assert check_sampler(f"{BROKEN_FILE}:Fine").broken == ()
    assert {promise for promises in BROKEN.values() for promise in promises} == set(PROMISES) - {
        "asks",  # in test_asking
        "errors",
        "options",  # below
    }


@pytest.mark.parametrize(
    ("kind", "smallest"),
    [
        ("OneAFewSeconds", "2 frames at 24 fps, k = 2"),
        ("RepeatsInShortVideos", "2 frames at 24 fps, k = 2"),
        ("FailsOnOneFrame", "1 frame at 0.1 fps, k = 1"),
    ],
)
def test_a_broken_promise_is_shown_on_its_smallest_case(kind, smallest):
    (broken,) = check_sampler(f"{BROKEN_FILE}:{kind}", with_second_start=False).broken
    assert str(broken.case) == smallest


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [40, 41, 1000])
def test_every_frame_is_a_keyframe_where_there_are_not_more_than_asked(name, k):
    if not sampler_classes()[name].may_return_fewer:
        assert select(make_sampler(name), Case(40, k, 10.0)).keyframes == tuple(range(40))


@pytest.mark.parametrize("name", COUNTED_AHEAD)
@pytest.mark.parametrize(("n_frames", "fps"), [(40, 10.0), (1000, 24.0), (7201, 29.97), (30000, 60.0)])
def test_pulls_are_counted_without_looking(name, n_frames, fps):
    sampler, case = make_sampler(name), Case(n_frames, 16, fps)
    planned, selection = sampler.at_cost(SCAN_COST), select(sampler, case)
    assert planned.count_pulls(case.video, k=16) == pytest.approx(selection.n_pulls, abs=selection.n_scanned and 2)
    assert planned.count_scans(case.video, k=16) == selection.n_scanned


@pytest.mark.parametrize("name", ["focus_iterative", "focus_released"])
def test_pulls_that_depend_on_what_is_seen_are_counted_closely(name):
    sampler, case = make_sampler(name), Case(30000, 16)
    assert sampler.count_pulls(case.video, k=16) == pytest.approx(select(sampler, case).n_pulls, rel=0.05)


@pytest.mark.parametrize("name", PULLING)
def test_what_an_encoder_cannot_give_is_refused_by_name(name):
    kind = sampler_classes()[name]

    def plain_encoder(frames):
        return np.full(frames.shape, 1.5)

    reason = "plain_encoder gives no" if kind.needs_logits or kind.needs_embeddings else r"relevance 1\.5"
    sampler = make_sampler(name, **({"share": 0.5} if name == "scan_cover" else {}))  # long enough for pulls
    with pytest.raises(EncoderError, match=reason):
        sampler.select(
            VideoInfo(900, 30.0), k=4, pull=plain_encoder, rng=np.random.default_rng(0), scan=np.sin, scan_cost=0.1,
            llm=FlatSource(),
        )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [0, -3])
def test_no_keyframe_asked_is_refused(name, k):
    with pytest.raises(FocusEvalError, match="k must be at least 1"):
        select(make_sampler(name), Case(100, k))


@pytest.mark.parametrize("name", NAMES)
def test_every_sampler_says_where_it_comes_from(name):
    kind = sampler_classes()[name]
    assert kind.name == name
    assert kind.source
    assert kind.__doc__


# The command ----------------------------------------------------------------------------------------------------------


def check(*arguments):
    return CliRunner().invoke(app, ["check", *arguments])


def test_check_of_a_sound_sampler_ends_with_exit_code_0():
    result = check("topk", "-o", "every_seconds=2.5")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == (
        "topk (topk, sampler; declares: pulls through the ledger, may_return_fewer)"
    )
    assert "BROKEN" not in result.stdout
    assert result.stdout.splitlines()[-1].startswith("every promise is kept on ")
    assert "14400 pulls" in result.stdout  # ten hours in steps of 2.5 seconds


def test_check_of_a_broken_sampler_says_where_and_what_to_do_and_ends_with_exit_code_1():
    result = check(f"{BROKEN_FILE}:OneAFewSeconds")
    assert result.exit_code == 1
    assert "smallest case: 2 frames at 24 fps, k = 2" in result.stdout
    assert "1 keyframes, 2 were requested, of a video of 2 frames (0.1 s)" in result.stdout
    assert "declare may_return_fewer = True" in result.stdout
    assert "not tried until the rest is fixed: budget, planned, errors, order, process" in result.stdout
    assert "1 promise is broken" in result.stdout


METHOD_NONE = {"name": "means_none", "method": "none", "__annotations__": {"method": str | None}}


def test_an_option_whose_text_means_another_value_is_named():
    kind = dataclass(frozen=True, kw_only=True)(type("MeansNone", (sampler_class(f"{BROKEN_FILE}:Fine"),), METHOD_NONE))
    (broken,) = contract.suite(kind(), seconds_allowed=100)[0].broken
    assert broken.message == "method=none is read as None, not as 'none': declare another type"


FILE_WITH_AN_OPTION = """
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from focus_eval import FrameSampler

@dataclass(frozen=True)
class Inner:
    weight: float = 0.5

Colour = Enum("Colour", "RED")

@dataclass(frozen=True, kw_only=True)
class Mine(FrameSampler):
    name, source = "mine", "test"
    mine: OPTION

    def choose(self, request): ...
"""


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("list[float] = field(default_factory=lambda: [1.0])", "list[float]"),
        ("tuple[float, ...] = (1.0, 2.0)", "tuple[float, ...]"),
        ("tuple[str, ...] | None = None", "tuple[str, ...] | None"),
        ("dict = field(default_factory=dict)", "dict"),
        ("Colour = Colour.RED", "Colour"),
        ("Inner = Inner()", "Inner"),
        ("Any = 1", "Any"),
    ],
)
@pytest.mark.parametrize("make", [check_sampler, make_sampler])
def test_an_option_that_text_cannot_say_is_refused_with_its_name_and_type(tmp_path, make, option, kind):
    path = tmp_path / "mine.py"
    path.write_text(FILE_WITH_AN_OPTION.replace("OPTION", option))
    with pytest.raises(PluginError) as refused:
        make(f"{path}:Mine")
    assert f"mine.py:Mine': option 'mine' has the type {kind}, " in str(refused.value)
    assert "let it be a bool, int, float, str or Literal" in str(refused.value)


def test_an_option_of_a_type_that_is_not_imported_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE_WITH_AN_OPTION.replace("OPTION", "'Path | None' = None"))
    with pytest.raises(PluginError, match="type of an option cannot be read: name 'Path' is not defined"):
        check_sampler(f"{path}:Mine")


@pytest.mark.slow
def test_options_may_follow_the_name_of_a_checked_sampler():
    result = check("even_topk:pulls=300")
    assert result.exit_code == 0
    assert " and 300 pulls" in result.output
    assert check_sampler(f"{BROKEN_FILE}:Fine:distinct=true").broken == ()


@pytest.mark.parametrize(
    "line", ["self.seen = 1", "request.rng.choice(0, 5, replace=False)", "request.rng.choice(0, 5)[LATER]"]
)
def test_an_exception_of_a_library_is_placed_on_the_line_that_called_it(tmp_path, line):
    text = FILE_WITH_AN_OPTION.replace("OPTION", "int = 1").replace("request): ...", f"request):\n        {line}")
    (tmp_path / "mine.py").write_text(text)
    (item,) = check_sampler(f"{tmp_path / 'mine.py'}:Mine").broken
    assert item.message.endswith(f"(mine.py:{text.splitlines().index('        ' + line) + 1})")


def test_what_a_sampler_that_only_raises_never_came_to_is_not_called_ok():
    verdict = check_sampler(f"{BROKEN_FILE}:Exits")
    assert [item.promise for item in verdict.broken] == ["runs"]
    assert set(verdict.not_tried) == set(PROMISES) - {"class", "runs", "options"}
    late = check_sampler(f"{BROKEN_FILE}:Seconds")  # its frames are no integers: looked at after the Choice
    assert {"range", "count", "ledger"} <= set(late.not_tried)
    assert "choice" not in late.not_tried


def test_check_of_another_signature_is_a_broken_promise_in_one_line():
    result = check(f"{BROKEN_FILE}:OldSignature")
    assert result.exit_code == 1
    assert "must be choose(self, request)" in result.stdout
    assert "Traceback" not in result.output


def test_check_of_what_does_not_exist_is_a_usage_error():
    with pytest.raises(UnknownName, match="did you mean 'focus'"):
        check_sampler("focsu")
    with pytest.raises(PluginError, match="there is no file"):
        check_sampler("nowhere.py:Mine")
    assert isinstance(check("focsu").exception, UnknownName)


def test_a_sampler_that_draws_nothing_is_asked_in_a_process_of_its_own_too():
    sampler = make_in_subprocess("maxinfo")
    selection = sampler.select(VideoInfo(500, 25.0), k=8, pull=FlatSource(), rng=derived_rng(0))
    assert len(selection.keyframes) >= 1


def test_every_broken_promise_is_one_that_check_prints():
    folders = (Path(contract.__file__).parent, Path(base.__file__).parent)
    texts = [path.read_text() for folder in folders for path in folder.glob("*.py")]
    stated = re.findall(r'\bbroken\(\s*"(\w+)"', "\n".join(texts))
    assert len(stated) > 10
    assert set(stated) <= contract.PROMISES.keys()
