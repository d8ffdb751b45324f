"""Detects videos whose file was replaced after rows about it were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec
from focus_eval.bench.matrix.folder import RunFolder, kind_of
from focus_eval.bench.matrix.questions import QuestionSet
from focus_eval.bench.rows.seen_videos import SeenState
from focus_eval.core.errors import RunError, VideoError, unknown_name
from focus_eval.keyframes.video.manifest import content_hash, entry_of
from focus_eval.keyframes.video.scan import scan_file
from focus_eval.keyframes.video.verification import forget_first_sight

# What to do if a video's file has changed since its rows were written.
ChangedVideos = Literal["refuse", "retry", "keep"]


def checked_policy(name: str) -> ChangedVideos:
    """Return `name`, one of `ChangedVideos`; UnknownName for another."""
    for policy in get_args(ChangedVideos):
        if policy == name:
            return cast(ChangedVideos, policy)
    raise unknown_name("way with changed videos", name, get_args(ChangedVideos))


def note_videos(
    run: RunFolder,
    parts: Sequence[SelectionSpec | AnswerSpec],
    sets: Mapping[str, QuestionSet],
    changed_videos: ChangedVideos,
) -> None:
    """Record size and change time of the videos of each part, and act on replaced videos that have rows.

    Args:
        sets: questions by the benchmark's configured name.
        changed_videos: "refuse" raises RunError and writes nothing, "retry" deletes the rows of replaced videos, "keep"
            leaves rows of both files.

    Raises:
        RunError: the file of a video with rows was replaced, and `changed_videos` is "refuse".
    """
    states_by_set = {name: _states(questions) for name, questions in sets.items()}
    noted = []
    for part in parts:
        questions, states = sets[part.benchmark.name], states_by_set[part.benchmark.name]
        record, folder = run.seen_videos(part), _folder(questions)
        changed = [
            video
            for video in record.changed(folder, states)
            if not _has_same_content(questions.video_path(video), record.videos[video][-1], states[video])
        ]
        # Leave out damaged files. Their questions fail, so rows of two files do not mix, and a repaired file counts as
        # the earlier file.
        damaged = {video for video in changed if not _is_video(questions.video_path(video), states[video])}
        mixed = _with_rows(run, part, questions, [video for video in changed if video not in damaged])
        if mixed and changed_videos == "refuse":
            raise RunError(_refusal(run, part, questions, mixed, states))
        noted.append((part, mixed, {video: state for video, state in states.items() if video not in damaged}))
    for part, mixed, states in noted:
        questions = sets[part.benchmark.name]
        for video in mixed:
            forget_first_sight(questions.video_path(video))
        if mixed and changed_videos == "retry":
            run.drop_videos(part, mixed)
            mixed = []
        if states:
            run.note_videos(part, run.seen_videos(part).updated(_folder(questions), states, mixed))


def _folder(questions: QuestionSet) -> str:
    return str(Path(questions.config.videos).expanduser().resolve()) if questions.config.videos else ""


def _states(questions: QuestionSet) -> dict[str, SeenState]:
    """Size and time of change of each video that is here."""
    states = {}
    for video in questions.by_video if questions.config.videos else ():
        try:
            status = questions.video_path(video).stat()
        except OSError:
            continue  # the video's questions record the error
        states[video] = SeenState(status.st_size, status.st_mtime_ns)
    return states


@cache
def _has_same_content(path: Path, last: SeenState, now: SeenState) -> bool:
    """True if only the change time differs: the content is that of the recorded state `last`."""
    match = entry_of(path)
    if match is None or (match[1].bytes, match[1].mtime_ns) != last or now.size != last.size:
        return False
    return content_hash(path) == match[1].sha256


@cache
def _is_video(path: Path, now: SeenState) -> bool:
    """True if the file in the state `now` can be read as a video, whatever its manifest says."""
    del now  # `now` serves only as a cache key
    try:
        scan_file(path)
    except VideoError:
        return False
    return True


def _with_rows(
    run: RunFolder, part: SelectionSpec | AnswerSpec, questions: QuestionSet, videos: Sequence[str]
) -> list[str]:
    """The videos among `videos` about which the part has rows without an error."""
    if not videos:
        return []
    with run.part_lock(part):
        errors = run.errors(part)
    return [video for video in videos if any(errors.get(item.id, "") is None for item in questions.by_video[video])]


def _refusal(
    run: RunFolder,
    part: SelectionSpec | AnswerSpec,
    questions: QuestionSet,
    videos: Sequence[str],
    states: Mapping[str, SeenState],
) -> str:
    last_state, state = run.seen_videos(part).videos[videos[0]][-1], states[videos[0]]
    end = f" and {len(videos) - 1} more videos" if len(videos) > 1 else ""
    return (
        f"{questions.video_path(videos[0])}{end}: exchanged since rows were made in {kind_of(part)}/{part.name} "
        f"({_state_text(last_state)} then, {_state_text(state)} now), and rows of two files would be mixed: put the "
        "earlier file back, or make its rows again with --changed-videos retry, or keep them with --changed-videos keep"
    )


def _state_text(state: SeenState) -> str:
    changed = datetime.fromtimestamp(state.mtime_ns / 1e9).isoformat(sep=" ", timespec="seconds")
    return f"{state.size:,} bytes of {changed}"
