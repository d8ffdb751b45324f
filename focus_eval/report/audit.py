"""Checks logs and selections for what makes their figures mean something else than they say.

Each check is a function over `AuditedRun`s and returns `Finding`s; `report/audit_reading.py` makes them from files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# Runs with different selections agreed on 61 to 98 % of the answers; a selection that never arrived on 99.7 to 100 %.
SAME_ANSWERS = 0.99
# Selections are the same where they are in as many questions.
SAME_FRAMES = 0.99
# Fewer questions in common cannot tell agreement by chance.
FEWEST_SHARED = 30
# All of a question's annotated numbers stand among the frames by chance only rarely.
POSITIONS_FED = 0.5
# Half of the fifth decimal, which the log is rounded to.
ROUNDING = 5.1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedAnswer:
    """What a model said to one question.

    Args:
        text: verbatim.
        is_parsed: whether an option or a value was read from it.
        score: None where there is none.
        prompt: text of what was asked, or a hash of it; empty where not known.
        category: type of the question; "" where not known.
        fed: the frames that reached the model, where the row says so.
    """

    text: str
    is_parsed: bool = True
    score: float | None = None
    prompt: str | bytes = ""
    category: str = ""
    fed: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class AuditedRun:
    """One run of one model on one task, or one selection, as the checks see it. All mappings are by question id.

    Args:
        name: how findings call it.
        group: task and model: only runs of one group are compared.
        answers: empty for a selection alone.
        frames: chosen frames (or seconds, see `unit`), in the file's order; a question that is not there has none
            recorded.
        unit: "frames" or "seconds".
        k: frames asked for; None where not known.
        lengths: of each video in `unit`, and the first frame (or second) that is surely past its end: a length that
            was worked out from seconds and a rate may be a little short.
        positions: annotated frame numbers, for videos whose own rate is another than that of the annotation.
        expected: ids of the benchmark's questions; empty where not known.
        stated_accuracy, stated_questions: what the run says of itself.
        scale: what a score of 1 counts in `stated_accuracy`: 1 or 100.
        problems: what could not be read, a line each.
        are_frames_sure: whether the frames are what our own rows say, not a field that somebody named.
    """

    name: str
    group: str = ""
    answers: Mapping[str, AuditedAnswer] = field(default_factory=dict)
    frames: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unit: str = "frames"
    k: int | None = None
    lengths: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    expected: frozenset[str] = frozenset()
    stated_accuracy: float | None = None
    stated_questions: int | None = None
    scale: float = 1.0
    problems: tuple[str, ...] = ()
    are_frames_sure: bool = False


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: which check, in which run or runs, how often and the worst case."""

    check: str
    where: str
    count: int
    of: int
    worst: str = ""

    def __str__(self) -> str:
        end = f"; {self.worst}" if self.worst else ""
        return f"{self.where}: {self.check}: {self.count:,} of {self.of:,}{end}"


def audit(runs: Sequence[AuditedRun]) -> list[Finding]:
    """Return all findings: those of each run, then those of runs that are compared."""
    alone = [finding for run in runs for check in CHECKS_OF_ONE for finding in check(run)]
    groups: dict[str, list[AuditedRun]] = {}
    for run in runs:
        if run.answers:
            groups.setdefault(run.group, []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    return alone + [finding for group in several for check in CHECKS_OF_SEVERAL for finding in check(group)]


def unread(run: AuditedRun) -> Iterator[Finding]:
    """What could not be read or does not fit: damaged lines, a question met twice, a selection that is refused."""
    if run.problems:
        n = len(run.problems)
        yield Finding("not readable as it is", run.name, n, n, run.problems[0])


def questions_missing_or_foreign(run: AuditedRun) -> Iterator[Finding]:
    """Questions of the benchmark without a line, and lines of questions that are not the benchmark's."""
    present = set(run.answers) or set(run.frames)
    if run.expected:
        missing, foreign = sorted(run.expected - present), sorted(present - run.expected)
        if missing:
            yield _finding("missing questions", run, missing, len(run.expected))
        if foreign:
            yield _finding("questions that are not the benchmark's", run, foreign, len(present))
    if run.stated_questions is not None and run.stated_questions != len(present) and not run.problems:
        worst = "the others are missing" if len(present) < run.stated_questions else "there are more"
        yield Finding("questions that its results file counts", run.name, len(present), run.stated_questions, worst)


def frames_past_the_end(run: AuditedRun) -> Iterator[Finding]:
    """Frames that the video does not have."""
    last = {key: max(frames) for key, frames in run.frames.items() if frames and key in run.lengths}
    past = [key for key, frame in last.items() if frame >= run.lengths[key][1]]
    if past:
        worst = max(past, key=lambda key: last[key] - run.lengths[key][0])
        length = run.lengths[worst][0]
        what = f"frame {last[worst]:.0f}, video has {length:.0f}"
        what = what if run.unit == "frames" else f"{last[worst]:.1f} s of {length:.1f} s"
        yield _finding("frames past the end of the video", run, past, len(last), f"{worst}: {what}")


def frames_in_order(run: AuditedRun) -> Iterator[Finding]:
    """Frames that are not in the order of time, and frames that stand more than once."""
    unsorted = [key for key, frames in run.frames.items() if any(b < a for a, b in itertools.pairwise(frames))]
    if unsorted:
        yield _finding("frames not in order", run, unsorted, len(run.frames))
    repeats = {key: len(frames) - len(set(frames)) for key, frames in run.frames.items()}
    repeated = [key for key, count in repeats.items() if count]
    if repeated:
        worst = max(repeated, key=lambda key: repeats[key])
        text = f"{worst}: {repeats[worst]} of {len(run.frames[worst])} frames repeat another"
        yield _finding("frames that repeat", run, repeated, len(run.frames), text)


def fewer_than_k(run: AuditedRun) -> Iterator[Finding]:
    """Fewer distinct frames than asked for, in videos that have as many."""
    if run.k is None:
        return
    distinct = {key: len(set(frames)) for key, frames in run.frames.items()}
    most = {key: run.lengths[key][0] for key in distinct if run.unit == "frames" and key in run.lengths}
    fewer = [key for key, count in distinct.items() if count < min(run.k, most.get(key, run.k))]
    if fewer:
        worst = min(fewer, key=lambda key: distinct[key])
        mean = sum(distinct[key] for key in fewer) / len(fewer)
        text = f"{mean:.1f} on average, {worst}: {distinct[worst]}"
        yield _finding(f"fewer distinct frames than K = {run.k}", run, fewer, len(distinct), text)


def same_frames_everywhere(run: AuditedRun) -> Iterator[Finding]:
    """The same frames for every question, or one frame over and over: a selection that is none."""
    if len(run.frames) < FEWEST_SHARED:
        return
    single = [key for key, frames in run.frames.items() if len(frames) > 1 and len(set(frames)) == 1]
    if len(single) >= SAME_FRAMES * len(run.frames):
        frame = run.frames[single[0]][0]
        yield _finding("one frame over and over", run, single, len(run.frames), f"{single[0]}: {frame:g}")
    elif len(set(run.frames.values())) == 1:
        yield _finding("the same frames in every question", run, list(run.frames), len(run.frames))


def positions_as_frames(run: AuditedRun) -> Iterator[Finding]:
    """Annotated frame numbers fed as frame numbers of files that have another rate."""
    checked = [key for key in run.positions if run.positions[key] and run.frames.get(key)]
    if run.unit != "frames" or len(checked) < FEWEST_SHARED:
        return
    fed = [key for key in checked if set(run.positions[key]) <= set(run.frames[key])]
    if len(fed) > POSITIONS_FED * len(checked):
        text = f"{fed[0]}: {_numbers(run.positions[fed[0]])}; the annotation counts at another rate than the file"
        yield _finding("annotated positions taken as native frame numbers", run, fed, len(checked), text)


def unparsed(run: AuditedRun) -> Iterator[Finding]:
    """Answers from which nothing was read, or whose option is not in the text."""
    failed = [key for key, answer in run.answers.items() if not answer.is_parsed]
    if failed:
        text = " ".join(run.answers[failed[0]].text.split())
        yield _finding("answers not parsed", run, failed, len(run.answers), f"{failed[0]}: {text[:60]!r}")


def accuracy_of_rows(run: AuditedRun) -> Iterator[Finding]:
    """A stated accuracy that the rows give neither as their mean nor as the mean over types of questions."""
    by_type: dict[str, list[float]] = {}
    for answer in run.answers.values():
        if answer.score is not None:
            by_type.setdefault(answer.category, []).append(answer.score)
    if run.stated_accuracy is None or not by_type:
        return
    scores = [score for of_type in by_type.values() for score in of_type]
    mean = run.scale * sum(scores) / len(scores)
    mean_of_types = run.scale * sum(sum(of_type) / len(of_type) for of_type in by_type.values()) / len(by_type)
    if min(abs(found - run.stated_accuracy) for found in (mean, mean_of_types)) > ROUNDING * run.scale:
        text = f"stated {run.stated_accuracy:.5f}, the rows give {mean:.5f}"
        text += f" ({mean_of_types:.5f} over {len(by_type)} types)" if len(by_type) > 1 else ""
        yield _finding("an accuracy that does not follow from the rows", run, list(run.answers), len(scores), text)


def fed_other_frames(run: AuditedRun) -> Iterator[Finding]:
    """Frames that reached the model and are not those that were chosen."""
    told = [key for key, answer in run.answers.items() if answer.fed is not None and key in run.frames]
    other = [key for key in told if run.answers[key].fed != run.frames[key]]
    if other:
        yield _finding("other frames fed than chosen", run, other, len(told))


def same_answers(group: Sequence[AuditedRun]) -> Iterator[Finding]:
    """Pairs of runs that answer alike though they saw other frames: the selection did not reach the model."""
    pairs = list(itertools.combinations(group, 2))
    found = []
    for a, b in pairs:
        shared = _shared(a, b)
        known = [key for key in shared if key in a.frames and key in b.frames]
        if known:  # only questions with other frames can tell
            shared = [key for key in known if set(a.frames[key]) != set(b.frames[key])]
        if len(shared) < FEWEST_SHARED:
            continue
        alike = sum(a.answers[key].text == b.answers[key].text for key in shared)
        if alike > SAME_ANSWERS * len(shared):
            found.append((alike / len(shared), alike, len(shared), a.name, b.name, bool(known)))
    if found:
        share, alike, n, first, second, is_known = max(found)
        frames = "from other frames" if is_known else "the frames are not in the logs"
        check = "pairs of runs with the same answers (did the selection reach the model?)"
        worst = f"{first} and {second}: {alike:,} of {n:,} ({100 * share:.2f} %), {frames}"
        yield Finding(check, _names(group), len(found), len(pairs), worst)


def same_frames_in_every_run(group: Sequence[AuditedRun]) -> Iterator[Finding]:
    """The same recorded frames in all runs although their answers differ: that field was not what was fed."""
    with_frames = [run for run in group if run.frames]
    if len(with_frames) < 2 or all(run.are_frames_sure for run in with_frames):
        return
    first, *others = with_frames
    differ = []
    for run in others:
        shared = [key for key in _shared(first, run) if key in first.frames and key in run.frames]
        alike = sum(first.frames[key] == run.frames[key] for key in shared)
        if len(shared) < FEWEST_SHARED or alike < SAME_FRAMES * len(shared):
            return
        differ.append(sum(first.answers[key].text != run.answers[key].text for key in shared) / len(shared))
    if max(differ) > 1 - SAME_ANSWERS:
        check = "runs with the same frames (is this the field that was fed?)"
        worst = f"their answers differ on up to {100 * max(differ):.1f} % of the questions"
        yield Finding(check, _names(with_frames), len(with_frames), len(group), worst)


def other_prompts(group: Sequence[AuditedRun]) -> Iterator[Finding]:
    """Runs of one group that asked the same question in other words."""
    pairs = list(itertools.combinations(group, 2))
    found = []
    for a, b in pairs:
        known = [key for key in _shared(a, b) if a.answers[key].prompt and b.answers[key].prompt]
        other = [key for key in known if a.answers[key].prompt != b.answers[key].prompt]
        if other:
            found.append((len(other), len(known), a.name, b.name, other[0]))
    if found:
        count, of, first, second, key = max(found)
        worst = f"{first} and {second}: {count:,} of {of:,} questions, the first is {key}"
        yield Finding("pairs of runs with other prompts", _names(group), len(found), len(pairs), worst)


def other_questions(group: Sequence[AuditedRun]) -> Iterator[Finding]:
    """Runs of one group that lack questions which others have."""
    every = set().union(*(run.answers for run in group))
    lacking = {run.name: every - set(run.answers) for run in group}
    lacking = {name: missing for name, missing in lacking.items() if missing}
    if lacking:
        name = max(lacking, key=lambda name: len(lacking[name]))
        worst = f"{name}: {len(lacking[name]):,} of {len(every):,}, the first is {min(lacking[name])}"
        yield Finding("runs that lack questions of the others", _names(group), len(lacking), len(group), worst)


CHECKS_OF_ONE: tuple[Callable[[AuditedRun], Iterable[Finding]], ...] = (
    unread,
    questions_missing_or_foreign,
    accuracy_of_rows,
    unparsed,
    frames_past_the_end,
    frames_in_order,
    fewer_than_k,
    same_frames_everywhere,
    positions_as_frames,
    fed_other_frames,
)
CHECKS_OF_SEVERAL: tuple[Callable[[Sequence[AuditedRun]], Iterable[Finding]], ...] = (
    same_answers,
    same_frames_in_every_run,
    other_prompts,
    other_questions,
)


def _finding(check: str, run: AuditedRun, keys: Sequence[str], of: int, worst: str = "") -> Finding:
    return Finding(check, run.name, len(keys), of, worst or f"the first is {keys[0]}")


def _shared(a: AuditedRun, b: AuditedRun) -> list[str]:
    return [key for key in a.answers if key in b.answers]


def _names(runs: Sequence[AuditedRun]) -> str:
    names = [run.name for run in runs]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")
