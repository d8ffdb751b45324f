"""`--only` finds what a matrix lists, under every name it has."""

from __future__ import annotations

import pytest

from focus_eval.bench.matrix.cells import narrow
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.core.errors import UnknownName

from .conftest import write_simulation

PEAKS = """
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.keyframes.samplers.base import Choice, FrameSampler


@dataclass(frozen=True)
class Peaks(FrameSampler):
    name: ClassVar[str] = "peaks"
    source: ClassVar[str] = "a test"

    def choose(self, request):
        return Choice(range(request.n_wanted))
"""


@pytest.fixture
def matrix(tmp_path):
    (tmp_path / "peaks.py").write_text(PEAKS)
    file = write_simulation(tmp_path / "one", samplers=("uniform", f"{tmp_path}/peaks.py:Peaks"))
    return load_matrix(file)


def test_a_sampler_in_a_file_goes_by_its_name_and_by_its_place(matrix, tmp_path):
    for name in ("peaks", f"{tmp_path}/peaks.py:Peaks"):
        assert [sampler.sampler for sampler in narrow(matrix, {"sampler": [name]}).samplers] == [
            f"{tmp_path}/peaks.py:Peaks"
        ]


def test_an_unknown_name_is_refused_with_the_nearest(matrix):
    with pytest.raises(UnknownName, match="did you mean 'peaks'"):
        narrow(matrix, {"sampler": ["peeks"]})
    with pytest.raises(UnknownName, match="did you mean 'sampler'"):
        narrow(matrix, {"samplre": ["uniform"]})


def test_one_question_alone_is_asked_and_an_unknown_one_refused(matrix):
    from focus_eval.bench.matrix.plan import load_sets

    (name,) = load_sets(matrix)
    ids = [question.id for question in load_sets(matrix)[name].questions]
    assert len(ids) > 1
    narrowed = load_sets(narrow(matrix, {"question": [ids[1]]}))[name]
    assert ([question.id for question in narrowed.questions], narrowed.all_ids) == ([ids[1]], ids)
    with pytest.raises(UnknownName, match=f"question of {name}: 'nobody'"):
        load_sets(narrow(matrix, {"question": ["nobody"]}))
