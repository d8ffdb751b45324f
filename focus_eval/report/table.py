"""A table and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

MINUS = "−"
NOTHING = "–"
TOO_FEW_VIDEOS = "too few videos"
# An arrow stands only where the adjusted p of a test is below this.
SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class Figure:
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

    @property
    def difference(self) -> float | None:
        """Ours minus the published figure; None where one of them is missing."""
        return None if self.ours is None or self.published is None else self.ours - self.published

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
        return text

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
    figures: tuple[Figure | str, ...]
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
        return any(
            isinstance(figure, Figure) and figure.published is not None for row in self.rows for figure in row.figures
        )

    @property
    def has_counts(self) -> bool:
        """Whether any row says what it rests on."""
        return any(row.counts is not None for row in self.rows)


def narrowed(table: Table) -> Table:
    """Return `table` for a screen: names that every row shares stand in the title instead of in columns."""
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


def merge_notes(*groups: Sequence[str]) -> tuple[str, ...]:
    """Return the notes of all groups, each once, in order."""
    return tuple(dict.fromkeys(note for group in groups for note in group))
