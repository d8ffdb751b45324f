"""The progress bar of frames being scored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class PullProgress:
    """A bar of frames scored, with the time that is left."""

    def __init__(self, bar: Progress, title: str) -> None:
        self._bar = bar
        self._task = bar.add_task(title, total=None)

    def expect(self, n_pulls: int) -> None:
        """Set the length of the bar; a sampler whose count varies with chance may end a little before or after."""
        self._bar.update(self._task, total=n_pulls)

    def advance(self, n_pulls: int) -> None:
        """Move the bar by the frames just scored."""
        self._bar.advance(self._task, n_pulls)


def progress_bar(unit: str = "frames") -> Progress:
    """Return a progress display on standard error, hidden if that is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def pull_progress(title: str) -> Iterator[PullProgress]:
    """Show a bar while frames are scored inside the block."""
    with progress_bar() as bar:
        yield PullProgress(bar, title)
