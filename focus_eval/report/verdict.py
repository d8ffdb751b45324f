"""Compares what a new sampler finds with others: by length, with adjusted p, and by question."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd

from focus_eval.report.comparisons import p_text
from focus_eval.report.lab import BUCKETS, baseline_label, paired_by_question
from focus_eval.report.paired_tests import PairedComparison, compare_paired, holm
from focus_eval.report.statistics import FEWEST_VIDEOS
from focus_eval.report.table import SIGNIFICANT, Figure, Table, TableRow

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;"
    "text-align:right}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}"
    "svg{max-width:100%;height:auto}p.note{color:#555;font-size:13px}"
)


def verdict_table(frame: pd.DataFrame, new: str, others: Sequence[str]) -> Table:
    """Return how much more evidence `new` finds than each of `others`, per K and length; every figure is tested.

    Args:
        frame: from `lab.lab_frame`, of one benchmark.
        new, others: names of samplers, at their defaults.
    """
    mine = baseline_label(frame, new)
    buckets = ["all", *(bucket for bucket in BUCKETS if bucket in set(frame["bucket"]))]
    lines: list[tuple[str, str, list[PairedComparison]]] = []
    for k in sorted(set(frame["k"])):
        for other in others:
            part = frame[frame["k"] == k]
            lines.append(
                (str(k), other, [_compared(part, mine, baseline_label(frame, other), bucket) for bucket in buckets])
            )
    adjusted = iter(holm([entry.p_value for _, _, compared in lines for entry in compared]))
    rows = tuple(
        TableRow((f"K = {k}", other), tuple(_figure(entry, float(next(adjusted))) for entry in compared))
        for k, other, compared in lines
    )
    return Table(
        name="verdict",
        title=f"Evidence recall within 2 s: {new} minus the others (points)",
        key_titles=("K", "Other"),
        columns=tuple(buckets),
        rows=rows,
        notes=(
            "Paired by question; 95 % interval: t, clustered by video. In brackets p of the sign-flip permutation test "
            "over videos, adjusted by Holm over this table; an arrow marks p below 0.05.",
        ),
    )


def verdict_lines(table: Table, new: str) -> list[str]:
    """Return one sentence per line of the table: where `new` finds more, less, or nothing can be said."""
    said = []
    for row in table.rows:
        parts: dict[str, list[str]] = {"more": [], "less": []}
        for bucket, figure in zip(table.columns, row.figures, strict=True):
            if isinstance(figure, Figure) and figure.p_adjusted is not None and figure.p_adjusted < SIGNIFICANT:
                parts["more" if (figure.ours or 0) > 0 else "less"].append(bucket)
        found = [f"{word} on {', '.join(where)}" for word, where in parts.items() if where]
        text = " and ".join(found) or "no difference that these videos could show"
        said.append(f"{row.keys[0]}, {new} against {row.keys[1]}: {text}.")
    return said


def telling_questions(frame: pd.DataFrame, new: str, other: str, k: int, n: int = 3) -> tuple[list[str], list[str]]:
    """Return up to `n` questions that `new` wins most clearly against `other`, and up to `n` that it loses."""
    part = frame[frame["k"] == k]
    both = paired_by_question(part, baseline_label(frame, other), baseline_label(frame, new))
    gain = (both["score_b"] - both["score_a"]).sort_values(kind="stable")
    return gain[gain > 0].index[::-1][:n].tolist(), gain[gain < 0].index[:n].tolist()


def verdict_page(title: str, sections: Sequence[tuple[str, Sequence[str | Table]]]) -> str:
    """Return one HTML page; a text that starts with "<svg" stands as it is, every other text is escaped."""
    body = [f"<h1>{html.escape(title)}</h1>"]
    for heading, items in sections:
        body.append(f"<h2>{html.escape(heading)}</h2>")
        for item in items:
            body.append(_html_table(item) if isinstance(item, Table) else _html_text(item))
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(body)}</body></html>"


def _compared(part: pd.DataFrame, mine: str, other: str, bucket: str) -> PairedComparison:
    here = part if bucket == "all" else part[part["bucket"] == bucket]
    both = paired_by_question(here, other, mine)
    return compare_paired(both["score_a"], both["score_b"], both["video"].tolist())


def _figure(comparison: PairedComparison, adjusted: float) -> Figure:
    value, low, high = comparison.difference.value, comparison.difference.low, comparison.difference.high
    figure = Figure(
        ours=100 * value,
        low=None if low is None else 100 * low,
        high=None if high is None else 100 * high,
        has_too_few_videos=comparison.difference.videos < FEWEST_VIDEOS or low is None,
        is_difference=True,
        p_adjusted=adjusted,
    )
    return Figure(ours=figure.ours, p_adjusted=adjusted, text=f"{figure.ours_text} ({p_text(adjusted)})")


def _html_text(text: str) -> str:
    return text if text.startswith("<svg") else f"<p>{html.escape(text)}</p>"


def _html_table(table: Table) -> str:
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in (*table.key_titles, *table.columns))
    lines = []
    for row in table.rows:
        cells = [*row.keys, *(figure.ours_text if isinstance(figure, Figure) else figure for figure in row.figures)]
        lines.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<p class='note'>{html.escape(note)}</p>" for note in table.notes)
    return f"<h3>{html.escape(table.title)}</h3><table><tr>{titles}</tr>{''.join(lines)}</table>{notes}"
