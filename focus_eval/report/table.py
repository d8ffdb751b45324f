"""A table and its values, printed to a terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from focus_eval.report.statistics import Estimate, Tested, holm

if TYPE_CHECKING:
    from rich.table import Table as RichTable


MINUS = "−"
NOTHING = "–"
TOO_FEW_VIDEOS = "too few videos"
TOO_FEW_NOTE = "Too few videos: fewer than 5 allow no interval."
# An arrow stands only where the adjusted p of a test is below this.
SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class Value:
    """Ours with its interval, the published one, and the difference, all in the unit of the column.

    Args:
        ours, low, high: None where we have no rows; an interval only where the figure is a mean of questions.
        published: None where nobody published one, or where it must not be compared.
        digits, published_digits: decimals shown.
        spread, seeds: standard deviation over seeds, where there are several.
        has_too_few_videos: a mean of questions of so few videos that there is no interval.
        is_difference: shown with its sign.
        p_adjusted: of the test that the figure is 0, adjusted over its table; None where nothing was tested.
        text: shown in place of the number, e.g. "<0.001".
        suffix: shown behind it, e.g. "(120)".
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
    is_difference: bool = False
    p_adjusted: float | None = None
    text: str = ""
    suffix: str = ""

    @classmethod
    def of(cls, estimate: Estimate | None, **said: Any) -> Value:
        """Return an estimate of a share, or of a difference of shares, in percent; an empty value for None.

        Args:
            said: other fields: is_difference, p_adjusted, suffix.
        """
        if estimate is None:
            return cls()
        low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
        return cls(ours=100 * estimate.value, low=low, high=high, has_too_few_videos=low is None, **said)

    @classmethod
    def of_p(cls, p_value: float | None, *, is_exact: bool = True) -> Value:
        """Return a p-value: three decimals or "<0.001", starred where it rests on random draws; empty for None."""
        if p_value is None:
            return cls()
        return cls(ours=p_value, text=p_text(p_value) + ("" if is_exact else "*"))

    @property
    def difference(self) -> float | None:
        """Ours minus the published figure; None where one of them is missing."""
        return None if self.ours is None or self.published is None else self.ours - self.published

    @property
    def plotted(self) -> float:
        """Ours as a plot takes it: NaN, which is not drawn, where there is none."""
        return float("nan") if self.ours is None else self.ours

    @property
    def is_clear(self) -> bool:
        """Whether a test says that the figure is not 0: its adjusted p is below 0.05. Never said from an interval."""
        return self.p_adjusted is not None and self.p_adjusted < SIGNIFICANT

    @property
    def ours_text(self) -> str:
        """E.g. "63.1 ±0.4 [60.4, 65.8]", "+2.3 ↑ [0.4, 4.1]", "33.3 [too few videos]"."""
        if self.text or self.ours is None:
            return self.text or NOTHING
        text = number(self.ours, self.digits, signed=self.is_difference)
        if self.is_clear:
            text += " ↑" if self.ours > 0 else " ↓"
        if self.spread is not None:
            text += f" ±{number(self.spread, self.digits)}"
        if self.low is not None and self.high is not None:
            text += f" [{number(self.low, self.digits)}, {number(self.high, self.digits)}]"
        elif self.has_too_few_videos:
            text += f" [{TOO_FEW_VIDEOS}]"
        return f"{text} {self.suffix}".rstrip()

    @property
    def brief_text(self) -> str:
        """`ours_text` without "[too few videos]", for a sentence."""
        return replace(self, has_too_few_videos=False).ours_text

    @property
    def published_text(self) -> str:
        """E.g. "63.5"."""
        return NOTHING if self.published is None else number(self.published, self.published_digits)

    @property
    def difference_text(self) -> str:
        """E.g. "+0.4"; empty where there is none."""
        return "" if self.difference is None else number(self.difference, self.digits, signed=True)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the figures of a row rest on.

    Args:
        questions, asked: distinct questions with a result, and all that were tried; `expected` are those of the split.
        unparsed, errors, fallbacks, below_k: (question, seed) pairs, undivided.
    """

    questions: int = 0
    asked: int = 0
    expected: int | None = None
    unparsed: int = 0
    errors: int = 0
    fallbacks: int = 0
    below_k: int = 0

    @property
    def questions_text(self) -> str:
        """E.g. "1337", or "50 of 1337" for a partial run."""
        total = self.expected if self.is_partial else self.asked
        return f"{self.questions} of {total}" if total != self.questions else str(self.questions)

    @property
    def is_partial(self) -> bool:
        """Whether questions of the split are missing."""
        return self.expected is not None and self.asked < self.expected


@dataclass(frozen=True)
class TableRow:
    """One line: its names, its figures in the order of the columns, and its counts (None: a published line)."""

    keys: tuple[str, ...]
    figures: tuple[Value | str, ...]
    counts: Counts | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table before it is printed anywhere.

    Args:
        name: for file names.
        key_titles, columns: headings; the figures of every row follow `columns`.
        notes: sentences below the table.
    """

    name: str
    title: str
    key_titles: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_published(self) -> bool:
        """Whether a published figure stands in the table."""
        return any(_published(figure) for row in self.rows for figure in row.figures)

    @property
    def has_counts(self) -> bool:
        """Whether any row says what it rests on."""
        return any(row.counts is not None for row in self.rows)


# The cells of a line by column; `difference_table` adjusts the p of those that are tested.
Cells = dict[str, "Value | Tested | str"]
TEST_NOTE = (
    "p: sign-flip test over videos, two-sided, adjusted over this table by Holm. An arrow: adjusted p below 0.05."
)
RANDOM_NOTE = "*: of 20,000 random assignments of signs; otherwise of all."


def difference_table(
    lines: Sequence[tuple[tuple[str, ...], Cells]],
    *,
    name: str,
    title: str,
    key_titles: tuple[str, ...],
    columns: tuple[str, ...],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table of differences, the p of all its `Tested` cells adjusted together by Holm's method.

    Args:
        lines: names and cells by column; a cell that is not there is empty. The columns "p" and "p (Holm)" hold those
            of the line's `Tested` cell.
        notes: the table says itself how p was made.
    """
    p_values = [cell.p_value for _, cells in lines for cell in cells.values() if isinstance(cell, Tested)]
    adjusted = iter(holm([p_value for p_value in p_values if p_value is not None]))
    rows, is_starred = [], False
    for keys, cells in lines:
        made: dict[str, Value | str] = {}
        for column, cell in cells.items():
            if not isinstance(cell, Tested):
                made[column] = cell
                continue
            p_adjusted = None if cell.p_value is None else float(next(adjusted))
            value = Value.of(cell.difference, is_difference=True, p_adjusted=p_adjusted)
            made |= {column: value, "p": Value.of_p(cell.p_value, is_exact=cell.is_exact)}
            made["p (Holm)"] = Value.of_p(p_adjusted)
            is_starred = is_starred or ("p" in columns and not cell.is_exact)
        rows.append(TableRow(keys, tuple(made.get(column, Value()) for column in columns)))
    return Table(
        name=name,
        title=title,
        key_titles=key_titles,
        columns=columns,
        rows=tuple(rows),
        notes=(*notes, TEST_NOTE, *((RANDOM_NOTE,) if is_starred else ())),
    )


def narrowed(table: Table) -> Table:
    """Return `table` for a screen: what every row shares is said once.

    Names stand in the title instead of in columns, and a note says which columns have no interval.
    """
    table = _few_said_once(table)
    if len(table.rows) < 2:
        return table
    last = len(table.key_titles) - 1
    shared = [at for at in range(last) if len({row.keys[at] for row in table.rows}) == 1]
    names = [f"{table.key_titles[at]} {table.rows[0].keys[at]}" for at in shared if table.rows[0].keys[at]]
    kept = [at for at in range(last + 1) if at not in shared]
    return replace(
        table,
        title=f"{table.title} ({', '.join(names)})" if names else table.title,
        key_titles=tuple(table.key_titles[at] for at in kept),
        rows=tuple(replace(row, keys=tuple(row.keys[at] for at in kept)) for row in table.rows),
    )


def _few_said_once(table: Table) -> Table:
    """Return `table` with a note in place of "[too few videos]" in columns that have no interval at all."""
    cells = [
        [cell for cell in column if isinstance(cell, Value)]
        for column in zip(*(row.figures for row in table.rows), strict=True)
    ]
    few = [at for at, column in enumerate(cells) if any(cell.has_too_few_videos for cell in column)]
    bare = {at for at in few if all(cell.low is None for cell in cells[at])}
    if not bare:
        return table
    rows = tuple(
        replace(row, figures=tuple(_without_few(cell) if at in bare else cell for at, cell in enumerate(row.figures)))
        for row in table.rows
    )
    notes = tuple(note for note in table.notes if note != TOO_FEW_NOTE or len(bare) < len(few))
    has_others = any(cell.low is not None for column in cells for cell in column)
    where = f" in {', '.join(table.columns[at] for at in sorted(bare))}" if has_others else ""
    return replace(table, rows=rows, notes=(*notes, f"No interval{where}: that takes 5 videos or more."))


def _without_few(cell: Value | str) -> Value | str:
    return replace(cell, has_too_few_videos=False) if isinstance(cell, Value) else cell


def notes_once(tables: Sequence[Table]) -> list[Table]:
    """Return `tables`, shown one below the other, without the notes that an earlier one carries."""
    said: set[str] = set()
    kept = []
    for table in tables:
        kept.append(replace(table, notes=tuple(note for note in table.notes if note not in said)))
        said.update(table.notes)
    return kept


COUNT_TITLES = ("questions", "unparsed", "errors", "fallbacks", "below K")


def count_texts(counts: Counts | None) -> tuple[str, ...]:
    """Return the texts under `COUNT_TITLES`; empty for a published line."""
    if counts is None:
        return ("",) * len(COUNT_TITLES)
    others = (counts.unparsed, counts.errors, counts.fallbacks, counts.below_k)
    return (counts.questions_text, *(str(other) for other in others))


def number(value: float, digits: int, *, signed: bool = False) -> str:
    """Return `value` with `digits` decimals and a true minus sign; `signed` puts a plus before the rest."""
    # A mean of 73.75 may come out as 73.74999999999999: the order of a sum must not decide the last digit.
    text = f"{round(abs(value), 9):.{digits}f}"
    if float(text) == 0:
        return f"±{text}" if signed else text
    return (MINUS if value < 0 else "+" if signed else "") + text


def p_text(value: float) -> str:
    """Return a p-value with three decimals, "<0.001" below that."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def to_terminal(table: Table, width: int) -> list[RichTable]:
    """Return rich tables that fit `width` characters and shorten nothing: one where all fits, else several.

    Where the columns do not fit side by side, the first tables hold the figures without their intervals (ours over the
    published figure and the difference), and those after them the intervals. Counts that are 0 in every row are said in
    a note instead of a column. The last table has the notes as its caption.
    """
    keys = [_Column(title, [row.keys[at] for row in table.rows]) for at, title in enumerate(table.key_titles)]
    counts, notes = _counts_in_terminal(table)
    whole = [*_figure_columns(table, _terminal_text), *counts]
    if _taken(keys) + _taken(whole) <= width:
        return [_rich_table(keys, whole, notes, width)]
    figures = [*_figure_columns(table, _without_interval), *counts]
    # Names longer than half the screen fold, between words as long as two thirds of it hold them.
    words = [_Column(key.title, [word for text in key.texts for word in text.split()]) for key in keys]
    room = width - max(min(_taken(keys), width // 2), min(_taken(words), 2 * width // 3))
    intervals = _figure_columns(table, _interval_text)
    groups = [*_side_by_side(figures, room), *_side_by_side(intervals, room)]
    last = len(groups) - 1
    return [_rich_table(keys, group, notes if at == last else (), width) for at, group in enumerate(groups)]


def to_markdown(table: Table) -> str:
    """Return a GitHub table with title and notes."""
    shown = COUNT_TITLES if table.has_counts else ()
    aligned = ["---"] * len(table.key_titles) + ["---:"] * (len(table.columns) + len(shown))
    rows = [
        [*map(_markdown_text, row.keys), *map(_markdown_cell, row.figures), *(count_texts(row.counts) if shown else ())]
        for row in table.rows
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in ([*table.key_titles, *table.columns, *shown], aligned, *rows)]
    notes = [f"{note}  " for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes]).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """Return a `table*` with booktabs rules; needs the packages booktabs and graphicx.

    A column with published figures becomes three: ours, published, difference.
    """
    import pandas as pd

    shown = COUNT_TITLES if table.has_counts else ()
    parts = [
        ("ours", "paper", "diff.") if any(_published(row.figures[i]) for row in table.rows) else ("",)
        for i in range(len(table.columns))
    ]
    titles = [(latex_escaped(title), "") for title in table.key_titles]
    for title, under in zip(table.columns, parts, strict=True):
        titles += [(latex_escaped(title), part) for part in under]
    titles += [(latex_escaped(title), "") for title in shown]
    lines = []
    for row in table.rows:
        cells = [text for figure, under in zip(row.figures, parts, strict=True) for text in _latex_cell(figure, under)]
        lines.append([*row.keys, *cells, *(count_texts(row.counts) if shown else ())])
    has_parts = any(part for _, part in titles)
    columns = pd.MultiIndex.from_tuples(titles) if has_parts else [title for title, _ in titles]
    frame = pd.DataFrame([map(latex_escaped, line) for line in lines], columns=columns)
    spec = "l" * len(table.key_titles) + "r" * (len(titles) - len(table.key_titles))
    return "\n".join(
        [
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{latex_escaped(table.title)}. {latex_escaped(' '.join(table.notes))}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\textwidth}{!}{%",
            frame.to_latex(index=False, escape=False, column_format=spec, multicolumn_format="c").rstrip() + "}",
            r"\end{table*}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """Return one line per row with every number in a column of its own, to ten significant digits."""
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
        **{item: f"\\{item}" for item in "&%$#_{}"},
    }
    return "".join(plain.get(letter, letter) for letter in text)


@dataclass(frozen=True)
class _Column:
    """One column of figures for a terminal: its title and its texts, a line each where they have several."""

    title: str
    texts: list[str]

    @property
    def width(self) -> int:
        """The narrowest it can be: a title folds between words, a figure or a name does not."""
        return max(len(part) for part in [*self.title.split(), *"\n".join(self.texts).split("\n"), "-"])


def _figure_columns(table: Table, text_of: Callable[[Value | str], str]) -> list[_Column]:
    """Return the columns in which `text_of` has something to say."""
    made = [_Column(title, [text_of(row.figures[at]) for row in table.rows]) for at, title in enumerate(table.columns)]
    return [column for column in made if any(column.texts)]


def _terminal_text(cell: Value | str) -> str:
    if isinstance(cell, str):
        return cell
    published = "" if cell.published is None else f"\npaper {cell.published_text} {cell.difference_text}".rstrip()
    return cell.ours_text + published


def _without_interval(cell: Value | str) -> str:
    if isinstance(cell, Value):
        cell = replace(cell, low=None, high=None, has_too_few_videos=False)
    return _terminal_text(cell)


def _interval_text(cell: Value | str) -> str:
    """Return e.g. "[60.4, 65.8]"; empty for a cell without an interval."""
    found = re.search(r"\[[^\]]*\]", "" if isinstance(cell, str) else cell.ours_text)
    return found[0] if found else ""


def _counts_in_terminal(table: Table) -> tuple[list[_Column], tuple[str, ...]]:
    """Return the counts worth a column, and the notes with one that names those that are 0 everywhere."""
    if not table.has_counts:
        return [], table.notes
    made = [
        _Column(title, [count_texts(row.counts)[at] for row in table.rows]) for at, title in enumerate(COUNT_TITLES)
    ]
    zero = [column.title for column in made if set(column.texts) <= {"0", ""}]
    notes = (*table.notes, f"In every row 0: {', '.join(zero)}.") if zero else table.notes
    return [column for column in made if column.title not in zero], notes


def _side_by_side(columns: list[_Column], room: int) -> list[list[_Column]]:
    """Return `columns` in groups that fit `room` characters; a group has one column at the least."""
    groups: list[list[_Column]] = []
    for column in columns:
        if not groups or _taken([*groups[-1], column]) > room:
            groups.append([])
        groups[-1].append(column)
    return groups


def _taken(columns: Sequence[_Column]) -> int:
    """Return the characters that columns take side by side: each has a blank on both sides and one after it."""
    return sum(column.width + 3 for column in columns)


def _key_widths(keys: Sequence[_Column], room: int) -> list[int]:
    """Return the widths of the names' columns: their own, or less from the widest where there is less room."""
    widths = [column.width for column in keys]
    while sum(widths) + 3 * len(widths) > room and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    return widths


def _rich_table(keys: list[_Column], columns: list[_Column], notes: Sequence[str], width: int) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, caption=Text("\n".join(notes)), caption_justify="left")
    for column, most in zip(keys, _key_widths(keys, width - _taken(columns)), strict=True):
        drawn.add_column(column.title, overflow="fold", width=most)
    for column in columns:
        drawn.add_column(column.title, justify="right", overflow="fold", width=column.width)
    for texts in zip(*(column.texts for column in [*keys, *columns]), strict=True):
        drawn.add_row(*map(Text, texts))
    return drawn


def _markdown_text(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)
    return escaped.replace("\n", " ")


def _markdown_cell(figure: Value | str) -> str:
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
    texts = [figure] if isinstance(figure, str) else [figure.ours_text, figure.published_text, figure.difference_text]
    return [*texts, "", ""][: len(parts)]


_CSV_PARTS = ("", " low", " high", " published", " difference", " spread over seeds")


def _csv_cell(figure: Value | str) -> list[object]:
    if isinstance(figure, str):
        return [figure]
    ours = figure.text if figure.ours is None and figure.text else figure.ours  # "not scored here"
    values = (ours, figure.low, figure.high, figure.published, figure.difference, figure.spread)
    return [value if value is None or isinstance(value, str) else float(f"{value:.10g}") for value in values]


def _csv_counts(row: TableRow) -> list[object]:
    if row.counts is None:
        return [""] * (len(COUNT_TITLES) + 1)
    count = row.counts
    return [count.questions, count.unparsed, count.errors, count.fallbacks, count.below_k, count.expected or ""]


def spreadsheet_cell(text: str) -> str:
    """Return `text` with an apostrophe before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
