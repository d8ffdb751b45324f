"""Chooses the keyframes of one question, from the video file to the row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.benchmarks.question import Question, query_text
from focus_eval.errors import InvalidInput
from focus_eval.pipeline.frame_server import SharedBatcher
from focus_eval.pipeline.relevance import Progress, VideoRelevance, VideoSession
from focus_eval.pipeline.timing import Meter, device_name
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.records import SelectionRow, error_line
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.ledger import RelevanceFn
from focus_eval.samplers.randomness import derived_rng
from focus_eval.scoring.cache.features import FeatureCache
from focus_eval.scoring.scorer import AnyScorer, CutsQueries, ScoresFrames
from focus_eval.types import CoarseSeed, FloatArray, IntArray, Selection, VideoInfo
from focus_eval.video import open_video
from focus_eval.video.reader import VideoReader

if TYPE_CHECKING:
    from focus_eval.scoring.cache.store import RelevanceStore


class Selector:
    """Chooses keyframes for one question after another, the same whatever their order.

    Args:
        sampler: the algorithm.
        encoder: gives relevance; None only for samplers that never pull.
        k: keyframes per question.
        seed: first part of every question's generator.
        store: keeps embeddings or relevance between runs; None keeps nothing.
        backend: video reader.
        coarse_seed: "video" lets the questions of one video share their coarse pulls.
        query: what of a question the encoder is given (see `benchmarks.question.query_text`).
        batch_size: frames encoded at once.
        kept: features of an encoder that stores no embeddings, bounded, for the other questions of a video; may be
            shared by selectors with the same encoder.
        keep_pulls: False writes only how many frames were scored, not which: simulations make too many.
        share_frames: False embeds every frame anew, whatever other selectors of this process embedded.

    Raises:
        InvalidInput: a sampler that pulls without an encoder, or k below 1.
    """

    def __init__(
        self,
        *,
        sampler: FrameSampler,
        encoder: AnyScorer | None,
        k: int,
        seed: int = 0,
        store: RelevanceStore | None = None,
        backend: str = "pyav",
        coarse_seed: CoarseSeed = "question",
        query: str = "question",
        batch_size: int = 32,
        kept: FeatureCache | None = None,
        share_frames: bool = True,
        keep_pulls: bool = True,
    ) -> None:
        if sampler.needs_encoder and encoder is None:
            raise InvalidInput(f"sampler {sampler.name!r} needs an encoder")
        if k < 1:
            raise InvalidInput(f"k must be at least 1, got {k}")
        self.sampler = sampler
        self.encoder = encoder if sampler.needs_encoder else None
        self.k = k
        self.seed = seed
        self._store = store
        self._backend = backend
        self._coarse_seed = coarse_seed
        self._query = query
        self._batch_size = batch_size
        self._kept = kept
        self._share_frames = share_frames
        self._keep_pulls = keep_pulls

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a selection, JSON values only."""
        file = {"sampler_file": self.sampler.file_digest} if self.sampler.file_digest else {}
        query = {} if self._query == "question" or self.encoder is None else {"query": self._query}
        return {
            **file,
            **query,
            "sampler": self.sampler.name,
            "sampler_version": self.sampler.version,
            "options": self.sampler.options,
            "encoder": self.encoder.name if self.encoder else "",
            "encoder_revision": self.encoder.revision if self.encoder else "",
            "k": self.k,
            "seed": self.seed,
            "coarse_seed": self._coarse_seed,
        }

    @property
    def selection_id(self) -> str:
        """Hash of `identity`, 16 hexadecimal digits."""
        return identity_hash(self.identity)

    def select(
        self,
        question: Question,
        video_path: Path,
        *,
        info: VideoInfo | None = None,
        batcher: SharedBatcher | None = None,
        bucket_of: Callable[[float], str] | None = None,
        progress: Progress | None = None,
    ) -> SelectionRow:
        """Return the row of `question` on the video at `video_path`.

        Args:
            info: length and rate where no frame need be read (a sampler that never pulls, recorded relevance);
                the file is then never opened.
            batcher: serves this question together with others of the same video; its reader is used, and stays open.
            bucket_of: length bucket of a duration in seconds, for questions that do not state their own.
            progress: is told of the pulls as they are made.

        Raises:
            FocusEvalError: a file, a frame or a relevance that is not as it must be.
        """
        meter = Meter()
        if info is not None:
            selection, forwards = self._run(question, video_path, info, self._pull_unread(question, video_path), meter)
            times = np.asarray(selection.keyframes) / info.fps
        else:
            with meter.stage("open"):
                opened = nullcontext(batcher.reader) if batcher else open_video(video_path, backend=self._backend)
            with opened as reader:
                if progress is not None:
                    progress.expect(self.sampler.count_pulls(reader.info, k=self.k))
                pull = self._pull(question, reader, meter, progress, batcher)
                selection, forwards = self._run(question, video_path, reader.info, pull, meter)
                times = reader.frame_times(np.asarray(selection.keyframes, dtype=np.int64))
        return self._row(question, selection, times, forwards, meter, bucket_of)

    def error_row(
        self, question: Question, error: BaseException, *, bucket_of: Callable[[float], str] | None = None
    ) -> SelectionRow:
        """Return the row that records why `question` has no selection."""
        return SelectionRow(
            **self._of_question(question, question.duration_seconds, bucket_of), error=error_line(error)
        )

    @property
    def changed_options(self) -> dict[str, Any]:
        """The sampler's options that are not at their defaults."""
        default = type(self.sampler)().options
        return {name: value for name, value in self.sampler.options.items() if value != default[name]}

    @property
    def device(self) -> str:
        """Name of the device the encoder runs on."""
        return device_name(getattr(self.encoder, "device", "cpu") if self.encoder else "cpu")

    def _run(
        self, question: Question, video_path: Path, info: VideoInfo, pull: RelevanceFn, meter: Meter
    ) -> tuple[Selection, int]:
        rng = derived_rng(self.seed, question.benchmark, question.id, self.sampler.name)
        coarse_rng = None
        if self._coarse_seed == "video":
            coarse_rng = derived_rng(self.seed, question.benchmark, question.video, "coarse")
        with meter.stage("select"):
            selection = self.sampler.select(
                info, k=self.k, pull=pull, rng=rng, coarse_rng=coarse_rng, evidence_seconds=question.evidence_seconds
            )
        return selection, pull.forwards if isinstance(pull, VideoRelevance) else 0

    def _pull(
        self,
        question: Question,
        reader: VideoReader,
        meter: Meter,
        progress: Progress | None,
        batcher: SharedBatcher | None,
    ) -> RelevanceFn:
        if self.encoder is None or isinstance(self.encoder, ScoresFrames):
            return self._pull_unread(question, reader.path)
        session = VideoSession(
            reader=reader,
            encoder=self.encoder,
            store=self._store,
            key=self._store.video_fingerprint(reader.path) if self._store else "",
            kept=None if self.encoder.stores_embeddings else self._kept,
            batch_size=self._batch_size,
            meter=meter,
            server=batcher,
            shares=self._share_frames,
        )
        return VideoRelevance(session, self._query_of(question), progress=progress)

    def _pull_unread(self, question: Question, video_path: Path) -> RelevanceFn:
        encoder = self.encoder
        if encoder is None:
            return _nothing_pulled
        if not isinstance(encoder, ScoresFrames):
            raise InvalidInput(f"encoder {encoder.name!r} needs the frames of {video_path}, not only its length")
        query = self._query_of(question)
        return lambda frames: encoder.relevance_of(video_path, frames, query)

    def _query_of(self, question: Question) -> str:
        return query_text(question, self._query)

    def _facts_about_query(self, query: str) -> dict[str, bool]:
        is_cut = isinstance(self.encoder, CutsQueries) and self.encoder.is_cut(query)
        return {"query_cut": True} if is_cut else {}

    def _row(
        self,
        question: Question,
        selection: Selection,
        times: FloatArray,
        forwards: int,
        meter: Meter,
        bucket_of: Callable[[float], str] | None,
    ) -> SelectionRow:
        stated = question.duration_seconds
        duration = selection.video.duration_seconds if stated is None else stated
        return SelectionRow(
            **self._of_question(question, duration, bucket_of),
            n_frames=selection.video.n_frames,
            fps=selection.video.fps,
            keyframes=list(selection.keyframes),
            times_seconds=[round(float(time), 6) for time in times],
            scales=None if selection.scales is None else list(selection.scales),
            **(self._pulls_of(selection) if self._keep_pulls else {"n_pulls": selection.n_pulls}),
            facts={**selection.facts, **self._facts_about_query(self._query_of(question))},
            forwards=forwards,
            seconds=meter.rounded(),
            device=self.device,
        )

    def _pulls_of(self, selection: Selection) -> dict[str, Any]:
        return {
            "pulled_frames": selection.pulled_frames.tolist(),
            "pulled_relevance": [None if np.isnan(one) else one for one in selection.pulled_relevance.tolist()],
            "clips": [list(astuple(clip)) for clip in selection.clips],
        }

    def _of_question(
        self, question: Question, duration_seconds: float | None, bucket_of: Callable[[float], str] | None
    ) -> dict[str, Any]:
        """Return the columns that a row has whether or not a selection came of it."""
        who = self.identity
        bucket = bucket_of(duration_seconds) if bucket_of and duration_seconds else ""
        query = {"query": who["query"]} if "query" in who else {}
        return {
            "benchmark": question.benchmark,
            "question_id": question.id,
            "video": question.video,
            "query": self._query_of(question),
            "selection_id": identity_hash(who),
            **{name: who[name] for name in ("sampler", "encoder", "encoder_revision", "k", "seed")},
            "options": {**who["options"], **query},
            "bucket": question.bucket or bucket,
            "duration_seconds": duration_seconds or 0.0,
            "evidence_seconds": list(question.evidence_seconds),
            "option_texts": list(question.options),
            "changed_options": {**self.changed_options, **query},
            "role": self.sampler.role,
        }


def _nothing_pulled(frames: IntArray) -> FloatArray:
    raise InvalidInput(f"{frames.size} frames pulled, but there is no encoder")
