"""Shared by the commands: tables, progress bars, folded lines, common options."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress as columns
from rich.console import Console
from rich.progress import Progress, Task
from rich.text import Text

from focus_eval.core.errors import NO_PERMISSION, InvalidInput, printable

if TYPE_CHECKING:
    pass


# Width for output into a file or pipe if COLUMNS is not set.
PIPED_WIDTH = 120
# Unit of progress bars whose counts mean nothing to a reader: only the share is shown.
PERCENT = "%"
# A command inside a message: in backticks, or from the start or a colon to the sentence's end.
_COMMAND = re.compile(
    r"`(?P<quoted>(?:hf|pip|python|focus-eval|lmms-eval) [^`]*)`|"
    r"(?:^|: ?|^ +)(?P<command>(?:hf|pip|focus-eval|lmms-eval) .*?)(?=`| \(|[,;] |$)"
)


def table_console() -> Console:
    """Return the console: as wide as the terminal or `COLUMNS`, else `PIPED_WIDTH`; without markup."""
    # Ask the stream itself: if FORCE_COLOR is set, rich treats a pipe as a terminal.
    has_known_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    # Without markup: an interval such as [0.1, 0.2] is text, not a style.
    return Console(markup=False, highlight=False, width=None if has_known_width else PIPED_WIDTH)


def print_link(text: str, path: Path) -> None:
    """Print `text` and the address of a file: a link in a terminal that shows links, else the address alone."""
    from rich.style import Style

    address = path.as_uri()
    line = Text(f"{text}: ").append(address, Style(link=address))
    Console(markup=False, highlight=False).print(line, soft_wrap=True)


def print_folded(text: str, indent: int = 2) -> None:
    """Print a line, folded at the width of a terminal; continuation lines are indented by `indent`.

    In a file or a pipe it stays one line, so that programs can search it.
    """
    print(folded(text, table_console().width, indent) if sys.stdout.isatty() else text)


def folded(text: str, width: int, indent: int = 2) -> str:
    """Return `text` in lines of `width`; a folded command gets backslashes, so that it can be copied."""
    if len(text) <= width:
        return text
    text = re.sub(r"\s", " ", text)
    lines = textwrap.wrap(
        text, width - 2, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )
    commands, at = [match.span(str(match.lastgroup)) for match in _COMMAND.finditer(text)], 0
    for number, line in enumerate(lines[:-1]):
        at = text.index(line.strip(), at) + len(line.strip())
        if any(start < at < stop for start, stop in commands):
            lines[number] = f"{line} \\"
    return "\n".join(lines)


def print_entries(entries: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print (name, lines) entries: the name on its own line, the lines indented and folded."""

    console = table_console()
    for name, lines in entries:
        console.print(Text(name, style="bold"))
        for line in lines:
            text = textwrap.fill(line, console.width - 4, subsequent_indent="  ", break_on_hyphens=False)
            console.print(Text(textwrap.indent(text, "    ")))


def name_completion(kind: str) -> Callable[[], list[str]]:
    """Return a function that lists the names of a kind ("sampler", "encoder", "video reader") for a shell."""

    def names() -> list[str]:
        """Return the names of the kind, read at the time of completion."""
        from focus_eval.keyframes.encoders.registry import ENCODERS
        from focus_eval.keyframes.samplers.registry import SAMPLERS
        from focus_eval.keyframes.video import READERS

        of_kind = {"sampler": SAMPLERS.names, "encoder": ENCODERS.names, "video reader": READERS.names}
        return of_kind[kind]()

    return names


class PullProgress:
    """A bar of frames scored, with the time left.

    Args:
        waiting: label until the first frames are scored, while encoders load.
    """

    def __init__(self, bar: Progress, title: str, *, waiting: str) -> None:
        """Add a bar to the display; if the display is disabled, print `waiting` if loading is slow."""
        self._bar = bar
        self._title = title
        self._task = bar.add_task(waiting, total=None)
        self._expected = 0
        self._waiting = ExitStack()
        if bar.disable:  # not a terminal: print one line if loading takes long
            self._waiting.enter_context(print_if_slow(waiting))

    def expect(self, n_pulls: int) -> None:
        """Lengthen the bar by an expected number of pulls; random samplers may need a few more or less."""
        self._expected += n_pulls
        self._bar.update(self._task, total=self._expected)

    def advance(self, n_pulls: int) -> None:
        """Move the bar by the frames just scored."""
        if n_pulls:
            self.stop_waiting()
        self._bar.advance(self._task, n_pulls)

    def stop_waiting(self) -> None:
        """Replace the waiting label by the title."""
        self._waiting.close()
        self._bar.update(self._task, description=self._title)


class ProgressLines(Progress):
    """Progress for a log file: a line a minute per unfinished task, with rate and remaining time."""

    def __init__(self, unit: str, *, every_seconds: float = 60.0) -> None:
        super().__init__(disable=True)
        self._unit, self._every_seconds = unit, every_seconds
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write_lines, daemon=True)

    def start(self) -> None:
        """Begin to print, in a thread."""
        self._writer.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._writer.is_alive():
            self._writer.join()

    def _write_lines(self) -> None:
        """Print a line for each unfinished task every `every_seconds`, until stopped."""
        while not self._ended.wait(self._every_seconds):
            for task in self.tasks:
                if task.visible and not task.finished:
                    print(progress_line(task, self._unit), file=sys.stderr, flush=True)


def seconds_left(task: Task) -> float | None:
    """Return the seconds that a task will still take at the rate of the latter half of its time; None if unknown.

    The rate since the start would include loading a model and the first videos, which say little about the rest. The
    rate of the last seconds would jump, since work is done in bursts.
    """
    n_done, elapsed = task.completed, task.elapsed or 0.0
    history: deque[tuple[float, float]] = task.fields.setdefault("history", deque([(0.0, 0.0)]))
    # Keep about a hundred points: enough to find the progress at half of the time.
    if elapsed - history[-1][0] > elapsed / 100:
        history.append((elapsed, n_done))
    while len(history) > 1 and history[1][0] <= elapsed / 2:
        history.popleft()
    if not n_done or not elapsed or task.total is None:
        return None
    since_seconds, n_then = history[0] if history[0][1] < n_done else (0.0, 0.0)
    return (task.total - n_done) * (elapsed - since_seconds) / (n_done - n_then)


def progress_line(task: Task, unit: str) -> str:
    """Return e.g. "select: 120 of 500 rows (24.0 %), 2.0 rows/s, about 0:03:10 left".

    With `PERCENT`, whose counts mean nothing to a reader: "select, 120 of 500 rows: 24.0 %, about 0:03:10 left".
    """
    elapsed, n_done, left = task.elapsed or 0.0, task.completed, seconds_left(task)
    left_text = f", about {timedelta(seconds=round(left))} left" if left is not None else ""
    if unit == PERCENT:
        unknown = "" if left_text else f", unknown time left after {timedelta(seconds=round(elapsed))}"
        return f"{task.description}: {task.percentage:.1f} %{left_text}{unknown}"
    total_text = f" of {task.total:,.0f} {unit} ({100 * n_done / task.total:.1f} %)" if task.total else f" {unit}"
    line = f"{task.description}: {n_done:,.0f}{total_text}"
    if not n_done or not elapsed:
        return f"{line}, none yet after {timedelta(seconds=round(elapsed))}"
    return f"{line}, {n_done / elapsed:,.1f} {unit}/s{left_text}"


def progress_bar(unit: str = "frames") -> Progress:
    """Return a progress display on standard error: a bar in a terminal, else a line a minute."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return ProgressLines(unit)
    bar_columns = (columns.TextColumn("{task.description}"), columns.BarColumn())
    counts: tuple[columns.ProgressColumn, ...] = (columns.TaskProgressColumn(),)
    if unit != PERCENT:
        counts = (columns.MofNCompleteColumn(), columns.TextColumn(unit))
    return Progress(*bar_columns, *counts, columns.TimeElapsedColumn(), TimeLeft(), console=console, transient=True)


class TimeLeft(columns.ProgressColumn):
    """Time left by `seconds_left`; rich's own column uses the last seconds' rate, which jumps with bursts of work."""

    def render(self, task: Task) -> Text:
        """Return e.g. "0:03:10 left"; blank before the first work is done."""
        left = seconds_left(task)
        return Text(f"{timedelta(seconds=round(left))} left" if left is not None else "")


@contextmanager
def count_progress(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar inside the block; yields a function that takes (done, total)."""
    with progress_bar(unit) as bar:
        task = bar.add_task(title, total=None)
        yield lambda n_done, total: bar.update(task, completed=n_done, total=total)


# Shell script that waits for what Python writes when a signal such as SIGSEGV ends it, and prints it as one line.
_CRASH_WATCHER = (
    'while read -r line; do case $line in "Fatal Python error: "*) echo "$1 (${line#*: })" >&2;; esac; done'
)


@contextmanager
def naming_crash(video: Path) -> Iterator[None]:
    """Let a shell print one line that names the video if a signal such as SIGSEGV ends this process within the block.

    Starting the shell takes about 2 ms. Without a shell, or if Python's own report is enabled, no line is printed.
    """
    shell = shutil.which("sh")
    if shell is None or faulthandler.is_enabled():
        yield
        return
    message = f"focus-eval: {printable(str(video))}: reading this file ended the process; re-encode it, or name another"
    with subprocess.Popen([shell, "-c", _CRASH_WATCHER, shell, message], stdin=subprocess.PIPE) as watcher:
        assert watcher.stdin is not None
        faulthandler.enable(watcher.stdin.fileno(), all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()


@contextmanager
def naming_out(folder: Path) -> Iterator[None]:
    """Turn an error of writing below `folder` into one that names the option for another folder.

    Raises:
        InvalidInput: the folder cannot be written.
    """
    try:
        yield
    except (OSError, InvalidInput) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in NO_PERMISSION:
            raise
        if not Path(os.fsdecode(cause.filename or "")).absolute().is_relative_to(folder.absolute()):
            raise
        reason = f"cannot be written ({cause.strerror}); name another folder: --out FOLDER"
        raise InvalidInput(f"{folder}: {reason}") from error


@contextmanager
def print_if_slow(text: str, *, after_seconds: float = 1.0) -> Iterator[None]:
    """Write `text` to standard error if the block takes longer than `after_seconds`."""
    timer = threading.Timer(after_seconds, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def say_how_to_continue(unit: str) -> Iterator[None]:
    """On Ctrl-C, print that the finished units are kept and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        text = f"stopped; {unit} are kept. Run the same command again to continue."
        print(text, file=sys.stderr, flush=True)
        raise


@contextmanager
def pull_progress(title: str, *, waiting: str) -> Iterator[PullProgress]:
    """Show a bar of scored frames inside the block, labelled `waiting` until the first is scored."""
    with progress_bar() as bar:
        progress = PullProgress(bar, title, waiting=waiting)
        try:
            yield progress
        finally:
            progress.stop_waiting()


def counted(n: int, noun: str) -> str:
    """Return e.g. "1 keyframe" or "8 keyframes"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def clock_text(seconds: float) -> str:
    """Return e.g. "1:02:03"."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def is_given(context: typer.Context, name: str) -> bool:
    """Return True if the command line has the parameter `name` of the command's function."""
    source = context.get_parameter_source(name)
    # typer passes None for an omitted list too, so ask for the source.
    return source is not None and source.name == "COMMANDLINE" and bool(context.params.get(name, True))


def refuse_idle_options(context: typer.Context, reason: str, *names: str) -> None:
    """Refuse options that the command line has and that would have no effect.

    Args:
        reason: why they have none, and the fix, as in "without --engine ray: give both, or neither".
        names: parameters of the command's function.

    Raises:
        InvalidInput: one of them is given.
    """
    for parameter in context.command.params:
        if parameter.name in names and is_given(context, parameter.name):
            is_option = parameter.param_type_name == "option"
            label = max(parameter.opts, key=len) if is_option else f"the argument {parameter.name}"
            raise InvalidInput(f"{label} has no effect {reason}")


AnnotationsFile = Annotated[Path | None, typer.Option(help="The benchmark's annotation file.")]
BenchmarkOption = Annotated[str, typer.Option(help="Name of the benchmark.")]
AllowOutside = Annotated[bool, typer.Option(help="Leave out and count frames past the end, and rows of no question.")]
AllowMissing = Annotated[bool, typer.Option(help="Leave out questions without frames.")]
FormatOption = Annotated[
    list[str],
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the format, e.g. sampler=focus; repeatable."),
]
FormatsOption = Annotated[
    list[str], typer.Option(metavar="FORMAT", help="Format of each selection file, in order; repeatable.")
]
SamplerOptions = Annotated[
    list[str], typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the sampler; repeatable.")
]
MinSecondsOption = Annotated[float, typer.Option(help="Leave out videos shorter than this.")]
MinutesOption = Annotated[
    float, typer.Option(help="Most minutes of the whole command; fewer videos run if need be.", min=0)
]
AlsoOption = Annotated[Path | None, typer.Option(help="Also write the tables to this file (.md, .csv or .tex).")]
