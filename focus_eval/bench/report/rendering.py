"""A table and its values, written to a terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from focus_eval.bench.report.statistics import DIFFER, FEW_EFFECTIVE, Estimate, Tested, holm

if TYPE_CHECKING:
    from rich.table import Table as RichTable


MINUS = "−"
NOTHING = "–"
TOO_FEW_VIDEOS = "too few videos"
TOO_FEW_NOTE = "Too few videos: fewer than 5 allow no interval."
# An arrow stands only where the adjusted p of a test is below this, and the interval leaves out 0.
SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class Value:
    """One figure of a table, in the unit of its column: measured value, 95 % interval and published value.

    Args:
        ours: measured value; None without rows.
        low, high: ends of the interval; None unless the value is a mean over questions of enough videos.
        published: published value; None if there is none, or if it must not be compared.
        digits, published_digits: decimals shown.
        spread, seeds: standard deviation over seeds (None for one seed), and their number.
        has_too_few_videos: True if too few videos allow no interval.
        shows_interval: False to print the value without its interval, or that there is none.
        is_difference: True to print the value with its sign.
        p_adjusted: p-value of the test that the value is 0, adjusted over its table; None if nothing was tested.
        text: text printed in place of the number, e.g. "<0.001".
        suffix: text printed behind it, e.g. "(120)".
    """

    ours: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None
    digits: int = 1
    published_digits: int = 1
    spread: float | None = None
    seeds: int = 1
    has_too_few_videos: bool = False
    shows_interval: bool = True
    is_difference: bool = False
    p_adjusted: float | None = None
    text: str = ""
    suffix: str = ""

    @classmethod
    def of(cls, estimate: Estimate | None, **fields: Any) -> Value:
        """Return an estimate of a share, or of a difference of shares, in percent; an empty value for None.

        Args:
            fields: further fields of the value: is_difference, p_adjusted, suffix.
        """
        if estimate is None:
            return cls()
        low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
        fields = {"suffix": f"({estimate.remark})" if estimate.remark else ""} | fields
        return cls(ours=100 * estimate.value, low=low, high=high, has_too_few_videos=low is None, **fields)

    @classmethod
    def of_p(cls, p_value: float | None, *, is_exact: bool = True) -> Value:
        """Return a p-value as text: three decimals or "<0.001", with a "*" unless exact; empty for None."""
        if p_value is None:
            return cls()
        return cls(ours=p_value, text=p_text(p_value) + ("" if is_exact else "*"))

    @property
    def difference(self) -> float | None:
        """The measured value minus the published one; None if one of them is missing."""
        return None if self.ours is None or self.published is None else self.ours - self.published

    @property
    def plotted(self) -> float:
        """The measured value as a number for plots; NaN, which is not drawn, if there is none."""
        return float("nan") if self.ours is None else self.ours

    @property
    def is_clear(self) -> bool:
        """True if the adjusted p-value of the test that the figure is 0 is below 0.05, and the interval leaves out 0.

        With few videos, or a few that have most of the questions, p alone is too small.
        """
        if self.p_adjusted is None or self.low is None or self.high is None:
            return False
        return self.p_adjusted < SIGNIFICANT and self.low * self.high > 0

    @property
    def ours_text(self) -> str:
        """The measured value as text, e.g. "63.1 ±0.4 [60.4, 65.8]", "+2.3 ↑ [0.4, 4.1]", "33.3 [too few videos]"."""
        if self.text or self.ours is None:
            return self.text or NOTHING
        text = number(self.ours, self.digits, signed=self.is_difference)
        if self.is_clear:
            text += " ↑" if self.ours > 0 else " ↓"
        if self.spread is not None:
            text += f" ±{number(self.spread, self.digits)}"
        if self.shows_interval and self.low is not None and self.high is not None:
            text += f" [{number(self.low, self.digits)}, {number(self.high, self.digits)}]"
        elif self.shows_interval and self.has_too_few_videos:
            text += f" [{TOO_FEW_VIDEOS}]"
        return f"{text} {self.suffix}".rstrip()

    @property
    def brief_text(self) -> str:
        """`ours_text` without "[too few videos]", for a sentence."""
        return replace(self, has_too_few_videos=False).ours_text

    @property
    def published_text(self) -> str:
        """The published value, e.g. "63.5"; "–" if there is none."""
        return NOTHING if self.published is None else number(self.published, self.published_digits)

    @property
    def difference_text(self) -> str:
        """The signed `difference`, e.g. "+0.4"; "" if there is none."""
        return "" if self.difference is None else number(self.difference, self.digits, signed=True)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The numbers of questions and answers behind the figures of a row.

    Args:
        benchmarks: their names, e.g. "longvideobench, videomme".
        questions: number of distinct questions with a result.
        attempted: number of distinct questions that were asked.
        expected: number of questions of the split; None if unknown.
        unparsed, errors, fallbacks, below_k: numbers of (question, seed) pairs, not divided by the number of seeds.
    """

    benchmarks: str = ""
    questions: int = 0
    attempted: int = 0
    expected: int | None = None
    unparsed: int = 0
    errors: int = 0
    fallbacks: int = 0
    below_k: int = 0

    @property
    def questions_text(self) -> str:
        """The number of questions, e.g. "1337", or "50 of 1337" for a partial run."""
        total = self.expected if self.is_partial else self.attempted
        return f"{self.questions} of {total}" if total != self.questions else str(self.questions)

    @property
    def is_partial(self) -> bool:
        """True if some questions of the split were not asked."""
        return self.expected is not None and self.attempted < self.expected


@dataclass(frozen=True)
class TableRow:
    """One line: its keys, its figures in the order of the columns, and its counts (None for a published line)."""

    keys: tuple[str, ...]
    figures: tuple[Value | str, ...]
    counts: Counts | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table in no output format yet.

    Args:
        name: name used in file names and labels.
        key_titles: headings of the rows' keys.
        columns: headings of the rows' figures.
        notes: sentences below the table.
    """

    name: str
    title: str
    key_titles: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, lines: Sequence[tuple[tuple[str, ...], Mapping[str, Value | str]]], **fields: Any) -> Table:
        """Return the table of `lines`: a row's keys, and its cells by column.

        Args:
            fields: of the table; `columns` are by default those of the lines. A missing cell is empty.
        """
        columns = fields.pop("columns", tuple(dict.fromkeys(column for _, cells in lines for column in cells)))
        rows = (TableRow(keys, tuple(cells.get(column, Value()) for column in columns)) for keys, cells in lines)
        return cls(columns=columns, rows=tuple(rows), **fields)

    @property
    def has_published(self) -> bool:
        """True if the table has a published figure."""
        return any(_published(figure) for row in self.rows for figure in row.figures)

    @property
    def has_counts(self) -> bool:
        """True if any row has counts."""
        return any(row.counts is not None for row in self.rows)


# The cells of a line by column; `difference_table` adjusts the p of those that are tested.
Cells = dict[str, "Value | Tested | str"]
TEST_NOTE = (
    "p: sign-flip test over videos, two-sided, adjusted over this table by Holm. An arrow: adjusted p below 0.05 and "
    "an interval without 0."
)
RANDOM_NOTE = "*: of 20,000 random assignments of signs; otherwise of all."

# Notes on intervals that are wide for a reason, by a part of the estimate's remark.
_REMARK_NOTES = {
    DIFFER: "N of M videos (or questions or groups, one of each video) differ: fewer than 5, so that the interval is "
    "Clopper and Pearson's for their number, times the questions of the largest video over the mean.",
    FEW_EFFECTIVE: "Few effective videos: a few have most of the questions. (sum n)² / sum n² is below half of the "
    "videos, and the interval is widened.",
}


def difference_table(
    lines: Sequence[tuple[tuple[str, ...], Cells]],
    *,
    columns: tuple[str, ...],
    notes: Sequence[str] = (),
    **fields: object,
) -> Table:
    """Return a table of differences, with the p-values of all its `Tested` cells adjusted together by Holm's method.

    Args:
        lines: pairs of a row's keys and its cells by column; a missing cell is empty. The columns "p" and "p (Holm)"
            are filled from the row's `Tested` cell.
        notes: sentences below the table. Notes on how p was computed are added.
        fields: further fields of the table.
    """
    p_values = [cell.p_value for _, cells in lines for cell in cells.values() if isinstance(cell, Tested)]
    adjusted = iter(holm([p_value for p_value in p_values if p_value is not None]))
    tested_lines, is_starred = [], False
    for keys, cells in lines:
        figures: dict[str, Value | str] = {}
        for column, cell in cells.items():
            if not isinstance(cell, Tested):
                figures[column] = cell
                continue
            p_adjusted = None if cell.p_value is None else float(next(adjusted))
            value = tested_value(cell.difference, p_adjusted)
            figures |= {column: value, "p": Value.of_p(cell.p_value, is_exact=cell.is_exact)}
            figures["p (Holm)"] = Value.of_p(p_adjusted)
            is_starred = is_starred or ("p" in columns and not cell.is_exact)
        tested_lines.append((keys, figures))
    remarks = [cell.difference.remark for _, cells in lines for cell in cells.values() if isinstance(cell, Tested)]
    remark_notes = [note for part, note in _REMARK_NOTES.items() if any(part in remark for remark in remarks)]
    notes = (*notes, *remark_notes, TEST_NOTE, *((RANDOM_NOTE,) if is_starred else ()))
    return Table.of(tested_lines, columns=columns, notes=notes, **fields)


def tested_value(difference: Estimate, p_adjusted: float | None, **fields: object) -> Value:
    """Return a tested difference in points; where p and interval disagree, with the shape that causes it.

    Args:
        fields: further fields of the value.
    """
    is_disputed = difference.low is not None and not difference.leaves_out_zero
    if p_adjusted is not None and p_adjusted < SIGNIFICANT and is_disputed:
        fields.setdefault("suffix", f"(no arrow: {difference.shape})")
    return Value.of(difference, is_difference=True, p_adjusted=p_adjusted, **fields)


# Text in the title for a key that all rows share; other keys show their value alone.
_KEY_TEXTS = {"K": "K = {}", "seed": "seed {}", "Within": "within {}", "d (s)": "d = {} s"}


def narrowed(table: Table) -> Table:
    """Return `table` with keys that all rows share moved into the title, and missing intervals into a note.

    The last key always stays a column.
    """
    table = _note_for_few_videos(table)
    if len(table.rows) < 2:
        return table
    last = len(table.key_titles) - 1
    shared = [at for at in range(last) if len({row.keys[at] for row in table.rows}) == 1]
    values = {table.key_titles[at]: table.rows[0].keys[at] for at in shared}
    if values.get("A", "") in table.title:  # a difference to this sampler
        values.pop("A", None)
    names = [_KEY_TEXTS.get(key, "{}").format(value) for key, value in values.items() if value]
    places = [at for at in range(last + 1) if at not in shared]
    return replace(
        table,
        title=", ".join([table.title, *names]),
        key_titles=tuple(table.key_titles[at] for at in places),
        rows=tuple(replace(row, keys=tuple(row.keys[at] for at in places)) for row in table.rows),
    )


def _note_for_few_videos(table: Table) -> Table:
    """`table` with a note instead of "[too few videos]" in every cell of a column without any interval."""
    cells = [
        [cell for cell in column if isinstance(cell, Value)]
        for column in zip(*(row.figures for row in table.rows), strict=True)
    ]
    columns_with_few = [at for at, column in enumerate(cells) if any(cell.has_too_few_videos for cell in column)]
    bare = {at for at in columns_with_few if all(cell.low is None for cell in cells[at])}
    if not bare:
        return table
    rows = []
    for row in table.rows:
        figures = [
            replace(cell, has_too_few_videos=False) if at in bare and isinstance(cell, Value) else cell
            for at, cell in enumerate(row.figures)
        ]
        rows.append(replace(row, figures=tuple(figures)))
    notes = tuple(note for note in table.notes if note != TOO_FEW_NOTE or len(bare) < len(columns_with_few))
    has_others = any(cell.low is not None for column in cells for cell in column)
    columns_text = f" in {', '.join(table.columns[at] for at in sorted(bare))}" if has_others else ""
    return replace(table, rows=tuple(rows), notes=(*notes, f"No interval{columns_text}: that takes 5 videos or more."))


def notes_once(tables: Sequence[Table]) -> list[Table]:
    """Return `tables` without the notes that an earlier table of the sequence has."""
    printed_notes: set[str] = set()
    shortened = []
    for table in tables:
        shortened.append(replace(table, notes=tuple(note for note in table.notes if note not in printed_notes)))
        printed_notes.update(table.notes)
    return shortened


COUNT_TITLES = ("questions", "unparsed", "errors", "fallbacks", "below K")


def count_texts(counts: Counts | None) -> tuple[str, ...]:
    """Return the texts under `COUNT_TITLES`; empty texts for a published line."""
    if counts is None:
        return ("",) * len(COUNT_TITLES)
    counters = (counts.unparsed, counts.errors, counts.fallbacks, counts.below_k)
    return (counts.questions_text, *(str(counter) for counter in counters))


def number(value: float, digits: int, *, signed: bool = False) -> str:
    """Return `value` with `digits` decimals and a true minus sign; `signed` adds "+" if positive, "±" if 0."""
    # A mean of 73.75 may be computed as 73.74999999999999: the order of a sum must not decide the last digit.
    text = f"{round(abs(value), 9):.{digits}f}"
    if float(text) == 0:
        return f"±{text}" if signed else text
    return (MINUS if value < 0 else "+" if signed else "") + text


def p_text(value: float) -> str:
    """Return a p-value with three decimals, "<0.001" below that."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def to_terminal(table: Table, width: int) -> list[RichTable]:
    """Return one rich table if it fits `width` characters, else several that do; no text is cut.

    Keys that are the same in every row stand above a table that would not fit with them. Of several tables the first
    hold the figures without their intervals (the measured value above the published one and the difference), so that
    rows can be compared, and the others the intervals; a table of one row keeps each interval beside its figure. Counts
    that are 0 in every row are named in a note. The last table has the notes as its caption.
    """
    keys = [_TerminalColumn(title, [row.keys[at] for row in table.rows]) for at, title in enumerate(table.key_titles)]
    counts, notes = _columns_of_counts(table)
    whole = [*_figure_columns(table, _terminal_text), *counts]
    if _taken(keys) + _taken(whole) <= width:
        return [_rich_table(keys, whole, notes, width)]
    shared_keys = [key for key in keys[:-1] if len(set(key.texts)) == 1]
    keys = [key for key in keys if key not in shared_keys]
    above = ", ".join(f"{key.title} {key.texts[0]}" for key in shared_keys)
    if _taken(keys) + _taken(whole) <= width:
        return [_rich_table(keys, whole, notes, width, above=above)]
    figures = [*_figure_columns(table, _without_interval), *counts]
    # A blank after the commas of a sampler's options lets its name fold there.
    keys = [replace(key, texts=[re.sub(r",(?=[a-z])", ", ", text) for text in key.texts]) for key in keys]
    # Fold names longer than half the screen: between words if the longest word fits two thirds of it.
    words = [_TerminalColumn(key.title, [word for text in key.texts for word in text.split()]) for key in keys]
    room = width - max(min(_taken(keys), width // 2), min(_taken(words), 2 * width // 3))
    groups = [*_side_by_side(figures, room), *_side_by_side(_figure_columns(table, _interval_text), room)]
    if len(table.rows) == 1 and all(_taken([column]) <= room for column in whole):
        groups = _side_by_side(whole, room)
    last = len(groups) - 1
    return [
        _rich_table(keys, group, notes if at == last else (), width, above="" if at else above)
        for at, group in enumerate(groups)
    ]


def to_markdown(table: Table) -> str:
    """Return `table` as GitHub Markdown, with its title as a heading and its notes below."""
    table = _note_for_few_videos(table)
    counters = COUNT_TITLES if table.has_counts else ()
    aligned = ["---"] * len(table.key_titles) + ["---:"] * (len(table.columns) + len(counters))
    rows = [
        [
            *map(_markdown_text, row.keys),
            *map(_markdown_cell, row.figures),
            *(count_texts(row.counts) if counters else ()),
        ]
        for row in table.rows
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in ([*table.key_titles, *table.columns, *counters], aligned, *rows)]
    notes = [f"{note}  " for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes]).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """Return `table` as a LaTeX `table*`; it needs the packages booktabs and graphicx.

    A column with published figures becomes three: ours, published, difference. As a page has little width, keys that
    all rows share stand in the caption, and counts that are 0 in every row in a note; the notes stand below the table.
    """
    import pandas as pd

    table = narrowed(table)
    counts, notes = _columns_of_counts(table)
    parts = [
        ("ours", "paper", "diff.") if any(_published(row.figures[i]) for row in table.rows) else ("",)
        for i in range(len(table.columns))
    ]
    titles = [(latex_escaped(title), "") for title in table.key_titles]
    for title, under in zip(table.columns, parts, strict=True):
        titles += [(latex_escaped(title), part) for part in under]
    titles += [(latex_escaped(count.title), "") for count in counts]
    lines = []
    for at, row in enumerate(table.rows):
        cells = [text for figure, under in zip(row.figures, parts, strict=True) for text in _latex_cell(figure, under)]
        lines.append([*row.keys, *cells, *(count.texts[at] for count in counts)])
    has_parts = any(part for _, part in titles)
    columns = pd.MultiIndex.from_tuples(titles) if has_parts else [title for title, _ in titles]
    frame = pd.DataFrame([map(latex_escaped, line) for line in lines], columns=columns)
    spec = "l" * len(table.key_titles) + "r" * (len(titles) - len(table.key_titles))
    return "\n".join(
        [
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{latex_escaped(table.title)}.}}",
            rf"\label{{tab:{table.name}}}",
            r"\smallskip",
            r"\resizebox{\textwidth}{!}{%",
            frame.to_latex(index=False, escape=False, column_format=spec, multicolumn_format="c").rstrip() + "}",
            *(
                [rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {latex_escaped(' '.join(notes))}}}"]
                if notes
                else []
            ),
            r"\end{table*}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """Return `table` as CSV: a line per row, and a column per number (value, low, high, ...) to ten digits."""
    import pandas as pd

    titles = [*table.key_titles]
    for i, title in enumerate(table.columns):
        is_text = any(isinstance(row.figures[i], str) for row in table.rows)
        titles += [f"{title}{part}" for part in ([""] if is_text else _CSV_PARTS)]
    titles += (*COUNT_TITLES, "expected questions") if table.has_counts else ()
    lines = []
    for row in table.rows:
        cells = [*row.keys, *(value for figure in row.figures for value in _csv_cell(figure))]
        counts = _csv_counts(row) if table.has_counts else []
        lines.append([*(spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in cells), *counts])
    return str(pd.DataFrame(lines, columns=titles, dtype=object).to_csv(index=False, lineterminator="\n"))


def latex_escaped(text: str) -> str:
    """Return `text` with LaTeX's special characters escaped."""
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
        **{item: f"\\{item}" for item in "&%$#_{}"},
    }
    return "".join(plain.get(letter, letter) for letter in text)


@dataclass(frozen=True)
class _TerminalColumn:
    """One column for a terminal: its title and a text per row, which may have several lines."""

    title: str
    texts: list[str]

    @property
    def width(self) -> int:
        """The smallest width in characters. A title folds between words, other texts do not fold."""
        return max(len(part) for part in [*self.title.split(), *"\n".join(self.texts).split("\n"), "-"])


def _figure_columns(table: Table, text_of: Callable[[Value | str], str]) -> list[_TerminalColumn]:
    """The figure columns with the texts that `text_of` makes of cells; a column without any text is left out."""
    candidates = [
        _TerminalColumn(title, [text_of(row.figures[at]) for row in table.rows])
        for at, title in enumerate(table.columns)
    ]
    return [column for column in candidates if any(column.texts)]


def _terminal_text(cell: Value | str) -> str:
    """A cell's text: measured value and interval, and below it the published one and the difference."""
    if isinstance(cell, str):
        return cell
    published = "" if cell.published is None else f"\npaper {cell.published_text} {cell.difference_text}".rstrip()
    return cell.ours_text + published


def _without_interval(cell: Value | str) -> str:
    if isinstance(cell, Value):
        cell = replace(cell, shows_interval=False)
    return _terminal_text(cell)


def _interval_text(cell: Value | str) -> str:
    """E.g. "[60.4, 65.8]"; empty for a cell without an interval."""
    match = re.search(r"\[[^\]]*\]", "" if isinstance(cell, str) else cell.ours_text)
    return match[0] if match else ""


def _columns_of_counts(table: Table) -> tuple[list[_TerminalColumn], tuple[str, ...]]:
    """The columns of counts that are not 0 in every row, and the notes with one that names the others."""
    if not table.has_counts:
        return [], table.notes
    count_columns = [
        _TerminalColumn(title, [count_texts(row.counts)[at] for row in table.rows])
        for at, title in enumerate(COUNT_TITLES)
    ]
    zero = [column.title for column in count_columns if set(column.texts) <= {"0", ""}]
    notes = (*table.notes, f"0 in every row: {', '.join(zero)}.") if zero else table.notes
    return [column for column in count_columns if column.title not in zero], notes


def _side_by_side(columns: list[_TerminalColumn], room: int) -> list[list[_TerminalColumn]]:
    """`columns` in groups that fit `room` characters, at least one column each."""
    groups: list[list[_TerminalColumn]] = []
    for column in columns:
        if not groups or _taken([*groups[-1], column]) > room:
            groups.append([])
        groups[-1].append(column)
    return groups


def _taken(columns: Sequence[_TerminalColumn]) -> int:
    """The width in characters of columns side by side, with 3 blanks for each."""
    return sum(column.width + 3 for column in columns)


def _rich_table(
    keys: list[_TerminalColumn],
    columns: list[_TerminalColumn],
    notes: Sequence[str],
    width: int,
    *,
    above: str = "",
) -> RichTable:
    """A table for the terminal of these columns, with the line `above` it and the notes as its caption."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, caption=Text("\n".join(notes)), caption_justify="left")
    if above:
        drawn.title, drawn.title_justify = Text(above), "left"
    # Narrow the widest key column until all fit, preferring one that folds between words, down to 8.
    room, key_widths = width - _taken(columns), [column.width for column in keys]
    word_widths = [max((len(word) for text in column.texts for word in text.split()), default=1) for column in keys]
    while sum(key_widths) + 3 * len(key_widths) > room and max(key_widths) > 8:
        foldable = [at for at, least in enumerate(word_widths) if key_widths[at] > max(8, least)]
        key_widths[max(foldable or range(len(keys)), key=key_widths.__getitem__)] -= 1
    for column, max_width in zip(keys, key_widths, strict=True):
        drawn.add_column(column.title, overflow="fold", width=max_width)
    for column in columns:
        drawn.add_column(column.title, justify="right", overflow="fold", width=column.width)
    for texts in zip(*(column.texts for column in [*keys, *columns]), strict=True):
        drawn.add_row(*map(Text, texts))
    return drawn


def _markdown_text(text: str) -> str:
    """`text` with Markdown's special characters escaped and line breaks as blanks."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)
    return escaped.replace("\n", " ")


def _markdown_cell(figure: Value | str) -> str:
    """A cell as text: a value with its published counterpart and their difference in brackets."""
    if isinstance(figure, str):
        return _markdown_text(figure)
    if figure.published is None:
        return figure.ours_text
    if figure.difference is None:
        return f"{figure.ours_text} (paper {figure.published_text})"
    return f"{figure.ours_text} (paper {figure.published_text}, {figure.difference_text})"


def _published(figure: Value | str) -> bool:
    return isinstance(figure, Value) and figure.published is not None


def _latex_cell(figure: Value | str, parts: tuple[str, ...]) -> list[str]:
    """A text for each of `parts`: measured value, published value, difference."""
    texts = [figure] if isinstance(figure, str) else [figure.ours_text, figure.published_text, figure.difference_text]
    return [*texts, "", ""][: len(parts)]


_CSV_PARTS = ("", " low", " high", " published", " difference", " spread over seeds")


def _csv_cell(figure: Value | str) -> list[object]:
    """The text alone, or a value for each of `_CSV_PARTS`."""
    if isinstance(figure, str):
        return [figure]
    number_or_text = figure.text if figure.ours is None and figure.text else figure.ours  # "not scored here"
    values = (number_or_text, figure.low, figure.high, figure.published, figure.difference, figure.spread)
    return [value if value is None or isinstance(value, str) else float(f"{value:.10g}") for value in values]


def _csv_counts(row: TableRow) -> list[object]:
    """A row's counts as CSV cells; empty cells for a published line."""
    if row.counts is None:
        return [""] * (len(COUNT_TITLES) + 1)
    count = row.counts
    return [count.questions, count.unparsed, count.errors, count.fallbacks, count.below_k, count.expected or ""]


def spreadsheet_cell(text: str) -> str:
    """Return `text` with an apostrophe before it if a spreadsheet would read it as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    """True if Python reads `text` as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
