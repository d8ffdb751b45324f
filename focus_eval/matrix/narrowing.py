"""Narrows a matrix to the named samplers, encoders, models and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_eval.errors import InvalidInput, unknown_name
from focus_eval.matrix.config import MatrixConfig
from focus_eval.samplers.registry import sampler_name

_LISTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "benchmark": ("benchmarks", lambda entry: entry.name),
    "model": ("models", lambda entry: entry.name),
    "encoder": ("encoders", lambda entry: entry.name),
    "sampler": ("samplers", lambda entry: sampler_name(entry.sampler)),
    "k": ("k", str),
    "seed": ("seeds", str),
}


def narrow(matrix: MatrixConfig, chosen: dict[str, list[str]]) -> MatrixConfig:
    """Return `matrix` with each list cut to the entries named, e.g. {"sampler": ["focus", "aks"]}.

    A sampler in a file goes by its name, `peaks`, and by its place, `peaks.py:Peaks`.

    Raises:
        UnknownName: a list or an entry that the matrix does not have; the message has the nearest name.
        InvalidInput: a cut that leaves nothing.
    """
    changes = {}
    for key, names in chosen.items():
        if key not in _LISTS:
            raise unknown_name("list to narrow", key, _LISTS)
        attribute, name_of = _LISTS[key]
        entries = getattr(matrix, attribute)
        known = [name_of(entry) for entry in entries]
        # A sampler from a file has a path in the matrix, and a name in the rows: both are understood.
        names = [sampler_name(name) for name in names] if key == "sampler" else names
        for name in names:
            if name not in known:
                raise unknown_name(f"{key} of matrix {matrix.name!r}:", name, known)
        # In the matrix's own order, so that cells and tables keep theirs.
        changes[attribute] = [entry for entry in entries if name_of(entry) in names]
        if not changes[attribute]:
            raise InvalidInput(f"--only {key}=... matches nothing in matrix {matrix.name!r}")
    return matrix.model_copy(update=changes)
