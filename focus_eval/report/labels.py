"""Names the series of a report: the sampler, what of its options is not default, and what tells two apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from focus_eval.rows.records import SelectionRow

_ORDER = ("uniform", "uniform_1fps", "random", "topk", "aks", "aks_dense", "qframe", "focus", "focus_released")


def labels_of(rows: Iterable[SelectionRow]) -> dict[str, str]:
    """Return a short name per selection id: the sampler, options that are not default, what distinguishes variants.

    "focus" alone; "aks max_depth=3"; "focus alpha=0.25" and "focus alpha=0.5" where both are there; "focus (clip)"
    among encoders; "oracle [ceiling]" for what is not a sampler that could be used.
    """
    variants: dict[str, SelectionRow] = {}
    for row in rows:
        if row.sampler or row.selection_id not in variants:  # a failed row may not say who was to choose
            variants[row.selection_id] = row
    by_sampler: dict[str, list[SelectionRow]] = {}
    for row in variants.values():
        by_sampler.setdefault(row.sampler, []).append(row)
    labels = {}
    for same in by_sampler.values():
        every = [{**row.options, **row.changed_options} for row in same]
        names = dict.fromkeys(name for options in every for name in options)
        differing = {name for name in names if len({str(options.get(name)) for options in every}) > 1}
        several_encoders = len({row.encoder for row in same}) > 1
        for row in same:
            text = _with_options(row, differing)
            text += f" ({row.encoder})" if several_encoders and row.encoder else ""
            labels[row.selection_id] = text + role_mark(row)
    return told_apart(labels, variants)


def series_text(row: SelectionRow, *, hidden: Iterable[str] = ()) -> str:
    """Return the sampler's name with its options that are not default, without the `hidden` ones, and its role."""
    return _with_options(row, (), hidden) + role_mark(row)


def _with_options(row: SelectionRow, differing: Iterable[str], hidden: Iterable[str] = ()) -> str:
    """Return the sampler's name with its options that are not default or in `differing`, without the `hidden` ones."""
    options = {**row.options, **row.changed_options}
    # An option that is none says nothing beside one that has a value: "even_cover" and "even_cover budget_of=focus".
    stated = [name for name in options if name in row.changed_options or name in set(differing)]
    shown = [name for name in stated if options[name] is not None]
    return " ".join([row.sampler, *(f"{name}={options[name]}" for name in shown if name not in hidden)])


def role_mark(row: SelectionRow) -> str:
    """Return " [control]" and the like behind the name of what is not a sampler that could be used, else nothing."""
    return "" if row.role == "sampler" else f" [{row.role}]"


def told_apart(labels: dict[str, str], variants: Mapping[str, SelectionRow]) -> dict[str, str]:
    """Mark selections that a table would take for one: the same label, k and seed, but chosen in another way.

    A folder holds such rows when a matrix was changed and run there again (another `coarse_seed`, a sampler's
    newer version, an edited sampler file). Pooled, they would pass for seeds of one configuration.
    """
    alike = Counter((labels[key], row.k, row.seed) for key, row in variants.items())
    return {
        key: f"{labels[key]} #{key[:4]}" if alike[labels[key], row.k, row.seed] > 1 else labels[key]
        for key, row in variants.items()
    }


def sampler_order(label: str) -> tuple[int, str]:
    """Return a sorting key of sampler labels: baselines first, then as the paper lists them, then by name."""
    sampler = label.split(" ")[0]
    return (_ORDER.index(sampler) if sampler in _ORDER else len(_ORDER), label)
