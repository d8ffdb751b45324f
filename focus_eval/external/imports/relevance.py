"""Reads published relevance at one frame a second, in AKS's files, into rows that simulations replay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from focus_eval.bench.benchmarks.registry import VideoRate, make_benchmark
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json
from focus_eval.core.types import FloatArray, Question, VideoInfo
from focus_eval.keyframes.rows.records import SCORED, KnownSelection, Origin, SelectionRow, selection_row

Kind = Literal["probability", "cosine"]
# CLIP's cosines lie within these bounds, at about .1 to .4. Probabilities of a whole benchmark reach beyond both.
HIGHEST_COSINE, LOWEST_COSINE = 0.6, 0.02
# A list may have this many scores more or fewer than expected, since stated durations are rounded.
COUNT_SLACK = 1
# Largest number and largest share of lists that may not fit their question's video. If more do not fit, the lists
# are probably not in the order of the questions, and the file is refused.
MAX_MISFITS, MAX_MISFITS_SHARE = 3, 0.02


@dataclass(frozen=True, kw_only=True)
class RelevanceOptions:
    """Options of `import relevance`.

    Args:
        kind: "cosine" scores become `(1 + cosine) / 2`; "auto" decides by the range of all scores, and refuses the file
            if
            that leaves doubt.
        published: file of AKS's selections from these scores, which shows whether the scores were read correctly.
        t1, max_depth: the options with which AKS made the file `published`.
    """

    kind: Literal["auto", "probability", "cosine"] = "auto"
    published: Path | None = None
    t1: float = 0.8
    max_depth: int = 5


@dataclass(frozen=True, kw_only=True)
class PublishedRelevance:
    """Relevance read from a file of scores and a file of frames.

    Args:
        rows: one row per question, with its scored frames. A simulation replays the rows that have evidence.
        left_out: a sentence for each question whose scores cannot be used.
        low, high: smallest and largest score.
    """

    kind: Kind
    rows: list[SelectionRow]
    left_out: list[str]
    low: float
    high: float

    @property
    def n_scores(self) -> int:
        """Number of scores in all rows."""
        return sum(len(row.pulled_frames) for row in self.rows)


def read_relevance(
    scores: Path,
    frames: Path,
    questions: Sequence[Question],
    rates: Mapping[str, VideoRate],
    *,
    encoder: str,
    kind: Literal["auto", "probability", "cosine"] = "auto",
) -> PublishedRelevance:
    """Return the relevance in `scores` of the frames in `frames`: a list per question, in the order of `questions`.

    Candidates are the frames `j * int(fps)` of each video. A question whose lists do not fit is left out.

    Args:
        rates: length and rate of the video by question id.
        encoder: name of the encoder that gave the scores, for the rows.

    Raises:
        InvalidInput: a file cannot be read, the numbers of lists and questions differ, lists fit other videos, a
            question has no rate, or scores are neither probabilities nor cosines.
    """
    usable_scores, left_out = _usable_scores(scores, frames, questions, rates)
    if not usable_scores:
        raise InvalidInput(f"{scores}: no question has scores that can be used; the first: {left_out[0]}")
    low = min(float(values.min()) for values in usable_scores.values())
    high = max(float(values.max()) for values in usable_scores.values())
    resolved_kind = kind if kind != "auto" else _kind(low, high, scores)
    if low < (-1 if resolved_kind == "cosine" else 0) or high > 1:
        raise InvalidInput(f"{scores}: scores lie in {low:.3g} to {high:.3g}, which no {resolved_kind} does")
    rows = _rows(usable_scores, questions, rates, encoder=encoder, is_cosine=resolved_kind == "cosine")
    return PublishedRelevance(kind=cast(Kind, resolved_kind), rows=rows, left_out=left_out, low=low, high=high)


def _usable_scores(
    scores_path: Path, frames_path: Path, questions: Sequence[Question], rates: Mapping[str, VideoRate]
) -> tuple[dict[str, FloatArray], list[str]]:
    """Return the scores by question id, and a sentence for each question that is left out.

    Raises InvalidInput if the numbers of lists and questions differ, or if too many lists do not fit their videos.
    """
    score_lists, frame_lists = _read_list(scores_path), _read_list(frames_path)
    scores: dict[str, FloatArray] = {}
    left_out, misfits = list[str](), list[str]()
    for number, (values, at, question) in enumerate(zip(score_lists, frame_lists, questions, strict=False)):
        if question.id not in rates:
            raise InvalidInput(f"no length and rate for question {question.id!r}; add it to the CSV of --rates")
        location = f"{question.id} (place {number})"
        try:
            own_scores = _numbers(values, "scores")
            bad = np.flatnonzero(~np.isfinite(own_scores))
            if bad.size:
                raise ValueError(f"score {bad[0]} is {own_scores[bad[0]]}")
            _check_frames(own_scores, _numbers(at, "frames"), rates[question.id])
        except _Misfit as error:
            misfits.append(f"{location}: {error}")
            left_out.append(f"{frames_path}: {location}: {error}: left out")
        except ValueError as error:
            left_out.append(f"{scores_path}: {location}: {error}: left out")
        else:
            scores[question.id] = own_scores
    n_questions = len(questions)
    first = f" (the first list that does not fit its video is of {misfits[0]})" if misfits else ""
    if not len(score_lists) == len(frame_lists) == n_questions:
        raise InvalidInput(
            f"{scores_path}: {len(score_lists)} lists of scores and {len(frame_lists)} of frames for {n_questions} "
            f"questions: which list is whose is lost; nothing was read{first}"
        )
    if len(misfits) > max(MAX_MISFITS, MAX_MISFITS_SHARE * n_questions):
        raise InvalidInput(
            f"{frames_path}: {len(misfits)} of {n_questions} lists fit other videos than their questions': "
            f"another order, split or file of rates? nothing was read{first}"
        )
    return scores, left_out


def _read_list(path: Path) -> list[object]:
    """The JSON list in a file, gzipped or not; raises InvalidInput for another value."""
    values = read_json(path)
    if not isinstance(values, list):
        raise InvalidInput(f"{path}: not a JSON list with an entry per question")
    return values


class _Misfit(ValueError):
    """A list that belongs to another video."""


def _numbers(values: object, content: str) -> FloatArray:
    """`values` as floats; raises ValueError, naming `content`, if it is empty or no list of numbers."""
    if values is None or values == []:
        raise ValueError(f"no {content}")
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ValueError(f"its {content} are not a list of numbers")
    return np.asarray(values).astype(np.float64)


def _check_frames(scores: FloatArray, frames: FloatArray, rate: VideoRate) -> None:
    """Raise an error unless `frames` are every `int(fps)`-th frame of the video, one for each score.

    Raises _Misfit if the frames belong to another video, ValueError if only the number of scores differs.
    """
    stride = _stride(rate)
    off = np.flatnonzero(frames != np.arange(frames.size) * stride)
    if off.size:
        raise _Misfit(f"frame {frames[off[0]]:g} at {off[0]}, {off[0] * stride} by int({float(rate.fps):g}) a second")
    expected = int(rate.n_frames / stride)
    if abs(frames.size - expected) > COUNT_SLACK:
        raise _Misfit(f"{frames.size} frames, {rate.duration_seconds:g} s of video have {expected}")
    if scores.size != frames.size:
        raise ValueError(f"{scores.size} scores for {frames.size} frames")


def _stride(rate: VideoRate) -> int:
    """The number of frames from one candidate to the next: `int(fps)`, about one second, at least 1."""
    return max(1, int(rate.fps))


def _kind(low: float, high: float, path: Path) -> str:
    """ "cosine" or "probability" by the range of all scores; raises InvalidInput if it could be either."""
    if low < 0 or (low >= LOWEST_COSINE and high <= HIGHEST_COSINE):
        return "cosine"
    if high > HIGHEST_COSINE:
        return "probability"
    raise InvalidInput(
        f"{path}: scores lie in {low:.3g} to {high:.3g}: probabilities or cosines? say -o kind=probability or cosine"
    )


def _rows(
    scores: Mapping[str, FloatArray],
    questions: Sequence[Question],
    rates: Mapping[str, VideoRate],
    *,
    encoder: str,
    is_cosine: bool,
) -> list[SelectionRow]:
    """Return a selection row for each question with scores: scored frames and relevance, no keyframes.

    A cosine c becomes relevance (1 + c) / 2.
    """
    digest = hashlib.sha256()
    for question_id, values in scores.items():
        digest.update(f"{question_id} {values.size} {is_cosine}".encode() + values.astype("<f8").tobytes())
    revision = digest.hexdigest()[:16]
    origin = Origin(selection_id=revision, sampler=SCORED, k=0, encoder=encoder, encoder_revision=revision)
    bucket_of = make_benchmark(questions[0].benchmark).bucket
    rows = []
    for question in questions:
        if question.id not in scores:
            continue
        values, rate = scores[question.id], rates[question.id]
        stride = _stride(rate)
        # The stated length is rounded: change it as little as needed so that the video has exactly one candidate per
        # score.
        n_frames = min(max(rate.n_frames, values.size * stride), (values.size + 1) * stride - 1)
        row = selection_row(
            question,
            origin,
            KnownSelection(
                video=VideoInfo(n_frames, float(rate.fps)),
                pulled_frames=(np.arange(values.size) * stride).tolist(),
                pulled_relevance=((1 + values) / 2 if is_cosine else values).tolist(),
            ),
            facts={"is_cosine": True} if is_cosine else {},
            measured_seconds=rate.duration_seconds,
            bucket_of=bucket_of,
        )
        rows.append(row)
    return rows
