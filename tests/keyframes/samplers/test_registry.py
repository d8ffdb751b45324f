"""Are samplers found by name, by plugin and by file, and are wrong names and values refused?"""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import pytest

from focus_eval import make_sampler
from focus_eval.core.errors import BrokenContract, InvalidInput, PluginError, UnknownName
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import SAMPLERS, sampler_class, sampler_classes

TOY = """
    from dataclasses import dataclass
    from typing import ClassVar

    import numpy as np

    from focus_eval.keyframes.samplers.base import Choice, FrameSampler


    @dataclass(frozen=True, kw_only=True)
    class First(FrameSampler):
        name: ClassVar[str] = "first"
        source: ClassVar[str] = "test"
        needs_encoder: ClassVar[bool] = False

        start: int = 0

        def choose(self, request):
            return Choice(keyframes=np.arange(self.start, min(self.start + request.k, request.video.n_frames)))
"""


@pytest.fixture
def toy_file(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(textwrap.dedent(TOY))
    return path


@pytest.fixture
def plugins(monkeypatch, tmp_path, install_plugins):
    """A function that makes entry points as an installed package would, given {name: source of a module}."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(**modules):
        for name, source in modules.items():
            (tmp_path / f"plugin_{name}.py").write_text(textwrap.dedent(source))
        install_plugins(SAMPLERS, **{name: f"plugin_{name}:First" for name in modules})

    return install


def test_the_samplers_of_the_text_are_all_there():
    ranges = {
        "uniform", "uniform_1fps", "random", "topk", "aks", "aks_dense", "focus", "focus_iterative", "focus_c",
        "focus_f", "focus_m", "focus_released", "focus_gop", "qframe", "bolt", "mdp3", "wfs_sb", "maxinfo",
        "even_topk", "even_diverse", "focus_diverse", "even_cover", "event_cover", "focus_cover",
        "oracle", "blind", "qca", "ktv",
    }  # fmt: skip
    assert ranges <= set(sampler_classes())


def test_an_unknown_sampler_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match="did you mean 'focus_released'"):
        make_sampler("focus_relesed")


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match="did you mean 'alpha'"):
        make_sampler("focus", alhpa=0.5)
    with pytest.raises(UnknownName, match="did you mean 'alpha'"):
        make_sampler("focus:alhpa=0.5")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("focus", {"alpha": 0}, "'alpha' of sampler 'focus' must be a finite number (above 0 and at most 1), got 0"),
        ("focus", {"alpha": 1.01}, "at most 1"),
        ("focus", {"alpha": "much"}, "must be a finite number"),
        ("focus", {"alpha": True}, "must be a finite number"),
        ("focus", {"alpha": float("nan")}, "must be a finite number"),
        ("focus", {"pulls_per_arm": 2.5}, "must be an integer"),
        ("focus", {"pulls_per_arm": 0}, "at least 1"),
        ("focus_released", {"interpolation_method": "cubic"}, "must be nearest or linear or rbf or uniform"),
        ("focus_released", {"min_gap_sec": "often"}, "a finite number or auto"),
        ("focus_released", {"temperature": 0.0001}, "at least 0.002"),
        ("focus_iterative", {"max_pulls": 0}, "an integer or auto or none (at least 1)"),
        ("qframe", {"fixed_frames": 1}, "must be true or false"),
        ("topk", {"every_seconds": 0}, "above 0"),
        ("even_topk", {"pulls": 5, "every_seconds": 2.0}, "give pulls or every_seconds, not both"),
        ("even_topk", {"pulls": 5, "budget_of": "aks"}, "give budget_of or pulls, not both"),
        ("even_cover", {"budget_of": "focsu"}, "did you mean 'focus'"),
        ("even_cover", {"budget_of": "focus:alhpa=1"}, "did you mean 'alpha'"),
        ("even_cover", {"budget_of": "focus alpha=1"}, "unknown sampler 'focus alpha=1'; did you mean 'focus'"),
        ("even_cover", {"budget_of": ""}, "unknown sampler ''"),
    ],
)  # fmt: skip
def test_a_value_outside_its_type_or_range_is_refused(name, options, message):
    with pytest.raises(InvalidInput) as refused:
        make_sampler(name, **options)
    assert message in str(refused.value)


def test_text_becomes_the_type_the_option_declares():
    focus = make_sampler("focus", alpha="0.5", pulls_per_arm=" 4 ")
    assert (focus.alpha, focus.pulls_per_arm) == (0.5, 4)
    assert make_sampler("focus_released", min_gap_sec="auto").min_gap_sec == "auto"
    assert make_sampler("focus_released", min_gap_sec="0.5").min_gap_sec == 0.5
    assert make_sampler("focus_released", region_half_window_sec="none").region_half_window_sec is None
    assert make_sampler("focus_released", region_half_window_sec="2").region_half_window_sec == 2.0
    assert make_sampler("focus_iterative", max_pulls="500").max_pulls == 500
    assert make_sampler("qframe", fixed_frames="true").fixed_frames is True
    assert make_sampler("aks", max_depth=3).max_depth == 3


def test_a_sampler_with_its_options_is_one_text():
    assert make_sampler("focus:alpha=0.5,pulls_per_arm=4") == make_sampler("focus", alpha=0.5, pulls_per_arm=4)
    assert make_sampler("focus:alpha=0.5", pulls_per_arm=4) == make_sampler("focus", alpha=0.5, pulls_per_arm=4)
    with pytest.raises(InvalidInput, match="option 'alpha' of 'focus' is given twice"):
        make_sampler("focus:alpha=0.5", alpha=0.1)


@pytest.mark.parametrize(
    ("name", "texts"),
    [("aks", {"max_depth": "3.5"}), ("focus", {"alpha": "much"}), ("qframe", {"fixed_frames": "yes"})],
)
def test_text_that_is_no_value_of_the_option_is_refused(name, texts):
    with pytest.raises(InvalidInput, match="must be"):
        make_sampler(name, **texts)


def test_an_integer_and_a_float_of_the_same_value_make_the_same_sampler():
    assert repr(make_sampler("focus", clip_seconds=16).options) == repr(
        make_sampler("focus", clip_seconds=16.0).options
    )


def test_a_sampler_comes_from_a_file(toy_file):
    from focus_eval import VideoInfo

    sampler = make_sampler(f"{toy_file}:First", start=5)
    selection = sampler.select(VideoInfo(100, 10.0), k=3, pull=len, rng=derived_rng(0))
    assert selection.keyframes == (5, 6, 7)
    assert make_sampler(f"{toy_file}:First:start=7").start == 7
    assert sampler_class(f"{toy_file}:First") is type(sampler)


@pytest.mark.parametrize(
    ("change", "class_name", "message"),
    [
        (("    @dataclass", "    def even(): ...\n\n    @dataclass"), "Second", "has no class 'Second'; it has First"),
        (
            ("(FrameSampler)", ""),
            "First",
            "not a FrameSampler class; derive it from focus_eval.keyframes.samplers.base.FrameSampler",
        ),
        (('name: ClassVar[str] = "first"', 'name: ClassVar[str] = "focus"'), "First", "is taken"),
        (('        name: ClassVar[str] = "first"\n', ""), "First", "class attributes `name`"),
        (("    @dataclass(frozen=True, kw_only=True)\n", ""), "First", "dataclass"),
        (("start: int = 0", "start: int"), "First", "defaults"),
        (("def choose", "def pick"), "First", "no `choose`"),
        (
            ("self, request):", "self, video, *, k, ledger, rng, coarse_rng):"),
            "First",
            r"must be choose\(self, request\)",
        ),
        (("self, request):", "self):"), "First", r"choose\(self\) must be choose\(self, request\)"),
        (
            ("        start: int = 0", "        role = 'best'\n        start: int = 0"),
            "First",
            "role must be sampler or control",
        ),
        (("import numpy", "import nampy"), "First", "line [0-9]+, cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_a_file_that_holds_no_usable_sampler_is_refused_with_the_reason(tmp_path, change, class_name, message):
    path = tmp_path / "broken.py"
    path.write_text(textwrap.dedent(TOY.replace(*change) if change[0] else TOY))
    with pytest.raises((PluginError, BrokenContract), match=message) as refused:
        make_sampler(f"{path}:{class_name}")
    assert "broken.py" in str(refused.value)


def test_a_missing_file_is_refused():
    with pytest.raises(PluginError, match="there is no file"):
        make_sampler("nowhere/mine.py:Mine")


def test_a_plugin_is_listed_and_made(plugins):
    plugins(first=TOY)
    assert "first" in sampler_classes()
    assert make_sampler("first", start=2).options == {"distinct": False, "start": 2}


def test_a_broken_plugin_raises_and_says_which(plugins):
    plugins(broken="raise OSError('no weights')")
    with pytest.raises(PluginError, match=r"'broken' \(plugin_broken:First\) cannot be loaded: OSError: no weights"):
        sampler_classes()


def test_a_plugin_nobody_asked_for_is_not_loaded(plugins):
    plugins(broken="raise OSError('no weights')")
    assert make_sampler("focus").name == "focus"


def test_a_plugin_may_not_take_a_name(plugins):
    plugins(focus=TOY)
    with pytest.raises(PluginError, match="the name is taken"):
        make_sampler("focus")


def test_a_plugin_must_agree_with_its_class_about_the_name(plugins):
    plugins(other=TOY)
    with pytest.raises(PluginError, match="calls itself 'first'"):
        make_sampler("other")


LOADED = "print(*sorted(m for m in sys.modules if m.startswith('focus_eval.keyframes.samplers.')))"


def test_making_a_sampler_imports_its_files_and_no_other_samplers():
    code = f"import sys; from focus_eval import make_sampler; make_sampler('focus'); {LOADED}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = ["asking", "bandit", "base", "expected_pulls", "focus", "ledger", "registry"]
    assert result.stdout.split() == [f"focus_eval.keyframes.samplers.{name}" for name in modules]


def test_listing_the_samplers_imports_none():
    code = f"import sys; from focus_eval.keyframes.samplers.registry import SAMPLERS; assert SAMPLERS.names(); {LOADED}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [
        f"focus_eval.keyframes.samplers.{name}" for name in ("asking", "base", "expected_pulls", "ledger", "registry")
    ]


def test_a_sampler_of_a_file_is_made_again_in_a_process_that_has_not_loaded_the_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from focus_eval import FrameSampler\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(FrameSampler):\n"
        "    name, source = 'mine', 'a test'\n"
        "    step: int = 4\n"
        "    def choose(self, request): ...\n"
    )
    sampler = make_sampler(f"{tmp_path}/mine.py:Mine", step=2)
    (tmp_path / "pickled").write_bytes(pickle.dumps(sampler))
    code = "import pickle, sys; s = pickle.load(open(sys.argv[1], 'rb')); print(s.name, s.step, s.file_digest)"
    process = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "pickled"], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["mine", "2", sampler.file_digest]
