"""Estimates what a run writes to disk: rows, and the store of embeddings and relevance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.question import Question
from focus_eval.errors import FocusEvalError
from focus_eval.matrix.cells import Cell, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import EncoderConfig, MatrixConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.planning import SelectionPlan, count_selections
from focus_eval.matrix.questions import QuestionSet
from focus_eval.types import VideoInfo

# Bytes of a row as a line of JSON beside its texts and options: of every row, of one that an encoder made (its
# revision, seconds by stage), of a keyframe with its time, of a pull with its relevance and clip.
ROW_BYTES, ENCODER_BYTES, KEYFRAME_BYTES, PULL_BYTES = 750, 400, 20, 32
ANSWER_BYTES, FED_BYTES = 900, 7
# Bytes of an entry of the store beside its embedding; an embedding takes a fifth more than its numbers.
ENTRY_BYTES, STORED_SHARE = 30, 1.2
# SQLite's log beside the store grows to about this before it is folded in.
LOG_BYTES = 20_000_000
# Numbers of an embedding where the checkpoint is not here to tell: the largest of the shipped encoders.
LARGEST_EMBEDDING = 1_152
# Pulls are counted on so many videos of a benchmark, evenly over their lengths.
MOST_VIDEOS = 32
# Where neither rates nor the documents say how long a video is.
_USUAL_VIDEO = VideoInfo(n_frames=30 * 900, fps=30.0)

Asked = list[tuple[int, Question, VideoInfo | FocusEvalError]]


@dataclass(frozen=True)
class DiskEstimate:
    """Most bytes that a run will have added to the disk at any moment.

    Args:
        rows: lines of JSON while it runs; the Parquet files that replace them are smaller.
        store: embeddings and relevance of frames.
    """

    rows: float = 0.0
    store: float = 0.0

    @property
    def gigabytes(self) -> float:
        """All of it, in 10^9 bytes."""
        return (self.rows + self.store) / 1e9


def disk_estimate(
    matrix: MatrixConfig, sets: dict[str, QuestionSet], folder: Path | None = None, *, store: Path | None = None
) -> DiskEstimate:
    """Return what a run of `matrix` will write.

    Pulls are counted as in a plan, on flat relevance, but of a few videos only.

    Args:
        sets: the questions by "matrix/benchmark", as far as they are here.
        folder, store: the run's folder and store; what they hold already is not counted again.
    """
    try:
        specs, all_cells = selection_specs(matrix), cells(matrix)
    except FocusEvalError:
        return DiskEstimate()  # reported where the plan is made
    run, parts, stored = RunFolder(folder) if folder else None, [0.0], 0.0
    for benchmark in matrix.benchmarks:
        questions = sets.get(f"{matrix.name}/{benchmark.name}")
        if questions is None or not questions.questions:
            continue
        mine = [spec for spec in specs if spec.benchmark.name == benchmark.name]
        sample = _sample(questions)
        counted, distinct = count_selections(mine, sample)
        scale = len(questions.questions) / sum(len(asked) for asked in sample)
        n_texts = _mean_text(questions)
        for spec, plan in zip(mine, counted, strict=True):
            parts.append(_left(run, spec, scale * _row_bytes(spec, plan, n_texts), len(questions.questions)))
        for cell in all_cells:
            if cell.selection.benchmark.name == benchmark.name:
                n_bytes = len(questions.questions) * (ANSWER_BYTES + FED_BYTES * cell.selection.k)
                parts.append(_left(run, cell, n_bytes, len(questions.questions)))
        if questions.config.videos:
            stored += scale * _stored_bytes(mine, counted, distinct)
    if stored:
        stored = max(0.0, stored - _size(store)) + LOG_BYTES
    # A part's lines go when its Parquet files are there, which take about a fifth: for a moment it is there twice.
    return DiskEstimate(rows=sum(parts) + max(parts) / 4, store=stored)


def _row_bytes(spec: SelectionSpec, plan: SelectionPlan, text_bytes: float) -> float:
    fixed = ROW_BYTES + len(json.dumps(spec.sampler.options)) + (ENCODER_BYTES if spec.encoder else 0)
    return plan.questions * (fixed + text_bytes) + KEYFRAME_BYTES * plan.keyframes + PULL_BYTES * plan.pulls


def _mean_text(questions: QuestionSet) -> float:
    """Return the mean bytes of question and options; a row has both."""
    texts = [[question.query, *question.options] for question in questions.questions]
    return sum(len(text.encode(errors="replace")) for several in texts for text in several) / len(texts)


def _stored_bytes(specs: list[SelectionSpec], plans: list[SelectionPlan], distinct: dict[str, int]) -> float:
    """Return what the counted questions add to the store: nothing where each pays alone, or where no encoder runs."""
    total, encoders = 0.0, dict[str, EncoderConfig]()
    for spec, plan in zip(specs, plans, strict=True):
        if spec.encoder is None or not spec.share_frames or (n_bytes := embedding_bytes(spec.encoder)) is None:
            continue
        encoders[spec.encoder.name] = spec.encoder
        # Relevance is kept by question. As if no two samplers pulled one frame: too much is the safe side.
        total += ENTRY_BYTES * plan.embedded_alone
    for name, encoder in encoders.items():
        if n_bytes := embedding_bytes(encoder):
            total += distinct[name] * (STORED_SHARE * n_bytes + ENTRY_BYTES)
    return total


def embedding_bytes(encoder: EncoderConfig) -> int | None:
    """Return the bytes of a frame's embedding in the store: 0 where only relevance is stored, None where nothing is.

    A checkpoint tells how many numbers it has; without it they are `LARGEST_EMBEDDING`.
    """
    from focus_eval.scoring.registry import encoder_class

    try:
        made = encoder_class(encoder.encoder)
    except FocusEvalError:
        return None  # it cannot run, which is reported elsewhere
    # As `ScoresFrames` in the scorer protocol: it is looked up by frame, and never stored.
    if hasattr(made, "relevance_of"):
        return None
    if not getattr(made, "stores_embeddings", False):
        return 0
    return 4 * (getattr(made, "embedding_size", 0) or _checkpoint_size(made, encoder) or LARGEST_EMBEDDING)


def _checkpoint_size(made: Any, encoder: EncoderConfig) -> int:
    """Return the numbers of an embedding as the checkpoint's config states them; 0 where it is not here."""
    from focus_eval.scoring.encoders.checkpoints import locate

    checkpoint, revision = encoder.options.get("checkpoint"), encoder.options.get("revision")
    name = str(checkpoint or getattr(made, "default_checkpoint", encoder.name))
    try:
        found = locate(name, revision=str(revision) if revision else None, model_type=made.model_type)
        stated = json.loads((found.folder / "config.json").read_text(encoding="utf-8"))
    except (FocusEvalError, AttributeError, OSError, ValueError):
        return 0
    # SigLIP has no projection: its embeddings are as wide as its vision tower.
    size = stated.get("projection_dim") or (stated.get("vision_config") or {}).get("hidden_size")
    return size if isinstance(size, int) else 0


def _sample(questions: QuestionSet) -> list[Asked]:
    """Return `MOST_VIDEOS` videos of all lengths, each with its questions and length; no video is opened."""
    infos: dict[str, VideoInfo] = {}
    for video, asked in questions.by_video.items():
        infos[video] = questions.known_info(asked[0]) or _stated(asked[0].duration_seconds)
    by_length = sorted(infos, key=lambda video: infos[video].n_frames)
    n = min(MOST_VIDEOS, len(by_length))
    # The middle of each of n equal parts of the videos in the order of their lengths.
    chosen = [by_length[math.floor((at + 0.5) * len(by_length) / n)] for at in range(n)]
    return [[(0, question, infos[video]) for question in questions.by_video[video]] for video in chosen]


def _stated(seconds: float | None) -> VideoInfo:
    return _USUAL_VIDEO if seconds is None else VideoInfo(n_frames=max(1, int(30 * seconds)), fps=30.0)


def _left(run: RunFolder | None, part: SelectionSpec | Cell, n_bytes: float, n_questions: int) -> float:
    """Return how many of `n_bytes` of a part's rows are still to be written."""
    if run is None:
        return n_bytes
    folder = run.part(part)
    lines = sum(_size(path) for path in _rows_files(folder))
    return max(0.0, n_bytes * (1 - min(1.0, _finished_rows(folder) / n_questions)) - lines)


def _rows_files(folder: Path) -> Iterator[Path]:
    return folder.glob("rows-*.jsonl")


def _finished_rows(folder: Path) -> int:
    file = folder / "rows.parquet"
    if not file.exists():
        return 0
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (OSError, pyarrow.ArrowException):  # damaged: the run says so
        return 0


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except OSError:  # not there, or gone between two looks
        return 0
