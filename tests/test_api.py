"""The public surface: nineteen names, each documented with an example that runs."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import focus_eval
from focus_eval.bench.matrix.config import load_matrix
from tests.bench.matrix.conftest import write_simulation
from tests.support.bench.matrix_rows import run_matrix
from tests.support.keyframes.synthetic import write_numbered_clip

REFERENCE = (Path(__file__).resolve().parents[1] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example_files(tmp_path_factory):
    """Return a folder with the video and the run that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    write_numbered_clip(folder / "talk.mp4", n_frames=80, fps=10)
    run_matrix(load_matrix(write_simulation(folder / "made")), out=folder / "results" / "runs" / "example")
    return folder


def test_the_public_names_are_those_of_the_reference():
    documented = set(re.findall(r"^### (\w+)$", REFERENCE, flags=re.MULTILINE))
    assert documented == set(focus_eval.__all__)
    assert len(focus_eval.__all__) == 19
    assert set(dir(focus_eval)) == {*focus_eval.__all__, "__version__"}


@pytest.mark.parametrize("name", focus_eval.__all__)
def test_the_docstring_of_a_public_name_has_an_example_that_runs(name, example_files, monkeypatch):
    monkeypatch.chdir(example_files)
    names = {public: getattr(focus_eval, public) for public in focus_eval.__all__} | {"np": np}
    example = doctest.DocTestParser().get_doctest(names[name].__doc__, names, name, None, None)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.slow
def test_the_examples_of_the_reference_run(example_files, monkeypatch):
    monkeypatch.chdir(example_files)
    blocks = re.findall(r"^```python\n(.*?)^```", REFERENCE, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 10
    # A dataclass looks its module up by name.
    module = type(sys)("reference")
    monkeypatch.setitem(sys.modules, "reference", module)
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), module.__dict__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        focus_eval.nothing  # noqa: B018


def test_importing_the_package_imports_no_module_of_it():
    code = "import focus_eval, sys; print(sorted(m for m in sys.modules if m.startswith(('focus_eval.', 'numpy'))))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
