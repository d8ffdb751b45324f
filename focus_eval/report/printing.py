"""How does a table look in a terminal, in Markdown, in LaTeX and in a spreadsheet?"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from focus_eval.report.table import COUNT_TITLES, MINUS, Figure, Table, TableRow, count_texts

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text


def to_terminal(table: Table) -> RichTable:
    """Return a rich table: ours over the published figure and the difference, notes as its caption."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    drawn.caption = "\n".join(table.notes)
    for title in table.key_titles:
        drawn.add_column(title, no_wrap=True)
    for title in table.columns:
        drawn.add_column(title, justify="right")
    shown = _counts_shown(table)
    for title in shown:
        drawn.add_column(title, justify="right")
    for row in table.rows:
        cells = [_terminal_cell(one) for one in row.figures]
        drawn.add_row(*(Text(key) for key in row.keys), *cells, *(Text(text) for text in _counts(row, shown)))
    return drawn


def to_markdown(table: Table) -> str:
    """Return a GitHub table with title and notes."""
    shown = _counts_shown(table)
    titles = [*table.key_titles, *table.columns, *shown]
    aligned = ["---"] * len(table.key_titles) + ["---:"] * (len(table.columns) + len(shown))
    lines = [f"### {table.title}", "", _markdown_line(titles), _markdown_line(aligned)]
    for row in table.rows:
        texts = [_markdown_cell(one) for one in row.figures]
        lines.append(_markdown_line([*map(_markdown_text, row.keys), *texts, *_counts(row, shown)]))
    lines += ["", *(f"{note}  " for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """Return a `table*` with booktabs rules; needs the packages booktabs and graphicx.

    A column with published figures becomes three: ours, published, difference.
    """
    split = [_has_published(table, i) for i in range(len(table.columns))]
    shown = _counts_shown(table)
    spec = "l" * len(table.key_titles) + "".join("rrr" if wide else "r" for wide in split) + "r" * len(shown)
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{latex_escaped(table.title)}. {latex_escaped(' '.join(table.notes))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        *_latex_heading(table, split, shown),
        r"\midrule",
    ]
    for row in table.rows:
        cells = [text for one, wide in zip(row.figures, split, strict=True) for text in _latex_cell(one, wide)]
        lines.append(_latex_line([*map(latex_escaped, row.keys), *cells, *_counts(row, shown)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""])


def to_csv(table: Table) -> str:
    """Return one line per row with every number in a column of its own, to ten significant digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    parts = ("", " low", " high", " published", " difference", " spread over seeds")
    is_text = [any(isinstance(row.figures[i], str) for row in table.rows) for i in range(len(table.columns))]
    heads = [
        [title] if text else [f"{title}{part}" for part in parts]
        for title, text in zip(table.columns, is_text, strict=True)
    ]
    counts = (*COUNT_TITLES, "expected questions") if table.has_counts else ()
    writer.writerow([*table.key_titles, *(name for group in heads for name in group), *counts])
    for row in table.rows:
        values = [value for one in row.figures for value in _csv_cell(one)]
        writer.writerow([*row.keys, *values, *(_csv_counts(row) if counts else [])])
    return buffer.getvalue()


def latex_escaped(text: str) -> str:
    """Return `text` with LaTeX's special characters made plain."""
    plain = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        MINUS: "$-$",
        "±": r"$\pm$",
        "–": "--",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "<": "$<$",
        ">": "$>$",
        **{one: f"\\{one}" for one in "&%$#_{}"},
    }
    return "".join(plain.get(letter, letter) for letter in text)


def _terminal_cell(one: Figure | str) -> Text:
    from rich.text import Text

    if isinstance(one, str):
        return Text(one)
    text = Text(one.ours_text, style="" if one.ours is not None else "dim")
    if one.published is not None:
        text.append(f"\npaper {one.published_text} ", style="dim")
        text.append(one.difference_text, style="dim")
    return text


def _counts_shown(table: Table) -> tuple[str, ...]:
    return COUNT_TITLES if table.has_counts else ()


def _counts(row: TableRow, shown: tuple[str, ...]) -> tuple[str, ...]:
    return count_texts(row.counts) if shown else ()


def _markdown_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)
    return escaped.replace("\n", " ")


def _markdown_cell(one: Figure | str) -> str:
    if isinstance(one, str):
        return _markdown_text(one)
    if one.published is None:
        return one.ours_text
    if one.difference is None:
        return f"{one.ours_text} (paper {one.published_text})"
    return f"{one.ours_text} (paper {one.published_text}, {one.difference_text})"


def _has_published(table: Table, i: int) -> bool:
    return any(isinstance(one := row.figures[i], Figure) and one.published is not None for row in table.rows)


def _latex_heading(table: Table, split: list[bool], shown: tuple[str, ...]) -> list[str]:
    titles = [
        rf"\multicolumn{{3}}{{c}}{{{latex_escaped(title)}}}" if wide else latex_escaped(title)
        for title, wide in zip(table.columns, split, strict=True)
    ]
    heading = [_latex_line([*map(latex_escaped, table.key_titles), *titles, *map(latex_escaped, shown)])]
    if any(split):
        under = [text for wide in split for text in (("ours", "paper", "diff.") if wide else ("",))]
        heading.append(_latex_line([""] * len(table.key_titles) + under + [""] * len(shown)))
    return heading


def _latex_cell(one: Figure | str, wide: bool) -> list[str]:
    if isinstance(one, str):
        return [latex_escaped(one)] + ([""] * 2 if wide else [])
    ours = latex_escaped(one.ours_text)
    if not wide:
        return [ours]
    return [ours, latex_escaped(one.published_text), latex_escaped(one.difference_text)]


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _csv_cell(one: Figure | str) -> list[object]:
    if isinstance(one, str):
        return [one]
    if one.ours is None and one.text:  # "not scored here"
        return [one.text, "", "", _plain(one.published), "", ""]
    return [_plain(value) for value in (one.ours, one.low, one.high, one.published, one.difference, one.spread)]


def _csv_counts(row: TableRow) -> list[object]:
    if row.counts is None:
        return [""] * (len(COUNT_TITLES) + 1)
    one = row.counts
    return [one.questions, one.unparsed, one.errors, one.fallbacks, one.below_k, one.expected or ""]


def _plain(value: float | None) -> object:
    return "" if value is None else float(f"{value:.10g}")
