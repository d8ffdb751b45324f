"""Checks a benchmark before a run: its questions, its task's documents, its videos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from focus_eval.errors import FocusEvalError
from focus_eval.matrix.config import BenchmarkConfig
from focus_eval.matrix.documents import MissingDocuments, find_documents, task_source
from focus_eval.matrix.questions import QuestionSet, load_questions, read_questions
from focus_eval.matrix.requirement import Missing
from focus_eval.matrix.task_requests import data_home


def questions_or_problems(config: BenchmarkConfig, limit: int | None) -> tuple[QuestionSet | None, list[Missing]]:
    """Return the questions of a benchmark, or what keeps them from being read; the rates are read too."""
    try:
        found = load_questions(config, limit=limit)
        # Read here, so that a damaged file of rates is found before the run and not in the middle of it.
        _ = found.rates
    except MissingDocuments as error:
        return None, [_with_token_hint(config, error)]
    except FocusEvalError as error:
        return None, [Missing(f"questions of {config.name}", str(error))]
    return found, []


def documents_problems(questions: QuestionSet) -> list[Missing]:
    """Return why the task cannot ask these questions, where they are from a file of annotations of their own."""
    config = questions.config
    try:
        find_documents(config)
        # Without `annotations`, so that what is read is what the task itself would ask.
        documents, where = read_questions(config.model_copy(update={"annotations": ""}))
    except MissingDocuments as error:
        return [_with_token_hint(config, error)]
    except FocusEvalError as error:
        return [Missing(f"documents of task {config.task} of {config.name}", str(error))]
    # By id, not by number: another version may hold as many questions, but others.
    known = {question.id for question in documents}
    absent = [question.id for question in questions.questions if question.id not in known]
    if not absent:
        return []
    what = f"{len(absent)} of {len(questions.questions)} questions of {config.name} in the task's documents ({where})"
    return [Missing(what, f"the first is {absent[0]!r}: another split or version? Leave `annotations` out")]


def place_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield where the task would look for videos in another folder than the samplers do."""
    # Only where both are stated can they disagree.
    if not (config.videos and config.task):
        return
    try:
        folder = task_source(config.task).video_folder
    except FocusEvalError:
        return  # reported with the questions
    # Samplers read from `videos`, the task from HF_HOME: two copies could differ without anyone noticing.
    looked = data_home(config) / folder
    stated = Path(config.videos).expanduser()
    videos = stated.resolve()
    # Links are followed: one folder under two names is one place.
    is_one_place = looked.resolve() in (videos, *videos.parents) or (looked / stated.name).resolve() == videos
    if folder and not is_one_place:
        yield Missing(
            f"one place for the videos of {config.name}: its task looks below {looked}, the config says {videos}",
            f"set data_home so that {folder} lies below it, or link {looked} to the videos",
        )


def folder_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield a folder of videos that does not exist, where the questions cannot say which videos are needed."""
    if config.videos and not Path(config.videos).expanduser().is_dir():
        what = f"all videos of {config.name} (about {config.disk_gigabytes:g} GB): no folder {config.videos}"
        yield Missing(what, _fetch_videos(config), gigabytes=config.disk_gigabytes)


def video_problems(questions: QuestionSet, *, answered: bool) -> list[Missing]:
    """Return how many videos are missing, of how many, and how large the data set is."""
    config = questions.config
    if not config.videos:
        if answered:
            return [Missing(f"the videos of {config.name}", "set videos in its config: models are shown frames")]
        return []
    files = {video: questions.video_path(video) for video in questions.by_video}
    absent = [video for video, file in files.items() if not file.is_file()]
    # A download that was broken off may leave such files, and they would fail one question at a time.
    empty = [video for video, file in files.items() if file.is_file() and file.stat().st_size == 0]
    missing = []
    if absent:
        present = sum(file.stat().st_size for file in files.values() if file.is_file()) / 1e9
        size = f"; {present:.3g} GB of about {config.disk_gigabytes:g} GB are here" if config.disk_gigabytes else ""
        what = f"{len(absent)} of {len(files)} videos of {config.name} ({_named(absent)}){size}"
        # By the number of videos; their sizes are not known before they are here.
        share = config.disk_gigabytes * len(absent) / len(files)
        missing.append(Missing(what, _fetch_videos(config), gigabytes=share))
    if empty:
        what = f"{len(empty)} of {len(files)} videos of {config.name} are empty files ({_named(empty)})"
        missing.append(Missing(what, f"delete them and fetch them again: {_fetch_videos(config)}"))
    return missing


def _fetch_videos(config: BenchmarkConfig) -> str:
    place = f"unpack the videos into {config.videos}"
    return f"hf download {config.source} --repo-type dataset, then {place}" if "/" in config.source else place


def _with_token_hint(config: BenchmarkConfig, error: MissingDocuments) -> Missing:
    if not config.gated:
        return Missing(error.what, error.fix)
    # Only whether there is one: the token itself is shown nowhere.
    from huggingface_hub import get_token

    has_token = "a token is set" if get_token() else "no token is set on this machine"
    return Missing(f"{error.what}; the data set is gated, {has_token}", error.fix)


def _named(videos: list[str]) -> str:
    return ", ".join(videos[:3]) + (", .." if len(videos) > 3 else "")
