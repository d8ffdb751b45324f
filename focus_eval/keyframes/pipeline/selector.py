"""Chooses the keyframes of a question: opens the video, runs the sampler and returns the row."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.errors import DamagedFrame, InvalidInput, RunError, VideoError
from focus_eval.core.types import (
    CoarseSeed,
    FloatArray,
    IntArray,
    Question,
    Selection,
    Timeline,
    VideoInfo,
    check_query_form,
    query_text,
    whole_number,
)
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.cache import FeatureCache
from focus_eval.keyframes.encoders.cost import relative_cost, selection_gmacs
from focus_eval.keyframes.llms.registry import AnswersFromEvidence, Model, llm_text, token_gmacs
from focus_eval.keyframes.pipeline.asking import ModelSession
from focus_eval.keyframes.pipeline.batch_packer import BatchPacker
from focus_eval.keyframes.pipeline.relevance import EncoderUse, OnPulls, scan_logits
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.source import OpenVideo, VideoSource
from focus_eval.keyframes.pipeline.stretch import Stretch, VideoPart, rate_varies, shown_part, whole_part
from focus_eval.keyframes.pipeline.timing import Meter, device_name
from focus_eval.keyframes.rows.identity import identity_hash, options_in_identity, selection_identity
from focus_eval.keyframes.rows.records import (
    BucketOf,
    Origin,
    SelectionCost,
    SelectionRow,
    known_selection,
    selection_row,
)
from focus_eval.keyframes.samplers.base import FrameSampler, QuestionTexts, derived_rng
from focus_eval.keyframes.samplers.ledger import FunctionSource, LookFn, RelevanceSource
from focus_eval.keyframes.samplers.scanning import ScanningSampler, cheap_frames
from focus_eval.keyframes.subtitles.files import in_order_of_time, read_subtitles
from focus_eval.keyframes.video import gives_exact_pixels, open_video

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.video.reader import VideoReader


_NO_ENCODER = FunctionSource(None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one question: its row, or the error and the cost so far.

    Args:
        row: None after an error.
        error: None if there is a row.
        cost: cost of a failed question that had already asked a model; None otherwise.
    """

    row: SelectionRow | None = None
    error: Exception | None = None
    cost: SelectionCost | None = None

    def selected_row(self) -> SelectionRow:
        """Return the row, or raise the error."""
        if self.row is None:
            raise self.error or RunError("a question without a row or an error")
        return self.row


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How frames are encoded, and what is kept in memory; the size of a batch may change last digits of relevance.

    Args:
        batch_size: frames encoded at once.
        feature_cache: keeps features of an encoder that stores no embeddings for other questions of a video; selectors
            with the same encoder may share it. None keeps none.
        scan_feature_cache: `feature_cache` of the scan encoder.
        share_frames: False embeds every frame again, even if other selectors of this process embedded it.
        batches: fills batches of the encoder with frames of other videos that are processed at the same time.
    """

    batch_size: int = 32
    feature_cache: FeatureCache | None = None
    scan_feature_cache: FeatureCache | None = None
    share_frames: bool = True
    batches: BatchPacker | None = None


@dataclass
class _QuestionRun:
    """One question while its frames are chosen: its sources of relevance and its cost.

    Attributes:
        session: with the model that the sampler asks; None if it asks none.
        has_begun: True once the sampler runs.
    """

    question: Question
    meter: Meter = field(default_factory=Meter)
    session: ModelSession | None = None
    pull: RelevanceSource = _NO_ENCODER
    scan: RelevanceSource = _NO_ENCODER
    has_begun: bool = False


class Selector:
    """Chooses keyframes of questions; results do not depend on the order of the questions.

    Args:
        sampler: the algorithm.
        encoder: gives relevance; None only for samplers that never pull.
        scan_encoder: the second, cheap one; None only for samplers that do not scan.
        llm: the model to ask; None only for samplers that ask none.
        k: keyframes per question.
        seed: first part of every question's generator.
        store: keeps embeddings or relevance between runs; None keeps nothing.
        backend: video reader.
        coarse_seed: "video" lets the questions of one video share their coarse pulls.
        query: form of the question for the encoder (see `core.types.query_text`).
        encoding: batches and caches; by default those of a single question.
        keep_pulls: False writes only the number of scored frames instead of their list, which is too long in
            simulations.
        stretch: the part of each video to choose from; None for all of it. Only for questions without evidence and
            subtitles, because their times are those of the whole video.
        timeline: what the sampler counts if the frame rate varies (see `stretch`).
        usual_timeline: value of `timeline` that is left out of the identity.
        skip_damaged: True: if a needed frame cannot be decoded, decode the whole video to find all damaged frames, and
            choose again as if they had been cut out; the row's fact "damaged_frames" counts them. The option is not
            part of the identity, since a row without this fact is the same with and without the option.

    Raises:
        InvalidInput: `k` is below 1, the sampler pulls but there is no encoder, or it scans but there is no scan
            encoder or its cost is unknown.
    """

    def __init__(
        self,
        *,
        sampler: FrameSampler,
        encoder: Encoder | None,
        scan_encoder: Encoder | None = None,
        llm: Model | None = None,
        k: int,
        seed: int = 0,
        store: RelevanceStore | None = None,
        backend: str = "pyav",
        coarse_seed: CoarseSeed = "question",
        query: str = "question",
        encoding: Encoding | None = None,
        keep_pulls: bool = True,
        stretch: Stretch | None = None,
        timeline: Timeline = "frames",
        usual_timeline: Timeline = "frames",
        skip_damaged: bool = False,
    ) -> None:
        """Keep what the sampler needs; raise InvalidInput if an encoder or model that it needs is None."""
        if sampler.needs_encoder and encoder is None:
            raise InvalidInput(f"sampler {sampler.name!r} needs an encoder")
        if sampler.needs_scan and scan_encoder is None:
            raise InvalidInput(f"sampler {sampler.name!r} needs a scan encoder")
        if sampler.needs_llm and llm is None:
            raise InvalidInput(f"sampler {sampler.name!r} asks a model: name it with llm=NAME")
        self.sampler = sampler
        # Drop the encoder of a sampler that never pulls: its rows are the same with any encoder, so their identity must
        # not name one.
        self.encoder = encoder if sampler.needs_encoder else None
        self._given = encoder
        self.scan_encoder = scan_encoder if sampler.needs_scan else None
        self.llm = llm if sampler.needs_llm else None
        if isinstance(sampler, ScanningSampler):
            sampler.cost_of_scan(self.scan_cost)  # raises if the cost is unknown, before the first video is opened
        self.k = whole_number(k, "k")
        self.seed = whole_number(seed, "seed", at_least=0)
        self.store = store
        self.backend = backend
        self._coarse_seed = coarse_seed
        check_query_form(query)
        # If there is neither encoder nor model, the query is not read, so the identity must not depend on its form.
        self._query = query if self.encoder or self.llm else "question"
        self._encoding = encoding or Encoding()
        self._keep_pulls = keep_pulls
        self._stretch = stretch
        self._timeline, self._usual_timeline = timeline, usual_timeline
        self.skips_damaged = skip_damaged

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change a selection, as JSON values."""
        stretch = {} if self._stretch is None else {"stretch": vars(self._stretch)}
        timeline = {} if self._timeline == self._usual_timeline else {"timeline": self._timeline}
        return (
            stretch
            | timeline
            | selection_identity(
                self.sampler,
                k=self.k,
                seed=self.seed,
                coarse_seed=self._coarse_seed,
                **self._networks,
                query=self._query,
                inexact_backend=self._inexact_backend.get("video_backend", ""),
            )
        )

    @property
    def _networks(self) -> dict[str, str]:
        """Names and revisions of the encoders and the model, as an `Origin` has them; "" for none."""
        return {
            "encoder": self.encoder.name if self.encoder else "",
            "encoder_revision": self.encoder.revision if self.encoder else "",
            "scan_encoder": self.scan_encoder.name if self.scan_encoder else "",
            "scan_encoder_revision": self.scan_encoder.revision if self.scan_encoder else "",
            "llm": self.llm.model_id if self.llm else "",
            "llm_revision": self.llm.revision if self.llm else "",
        }

    @property
    def selection_id(self) -> str:
        """Hash of `identity`, 16 hexadecimal digits."""
        return self.origin.selection_id

    def with_sampler(self, sampler: FrameSampler) -> Selector:
        """Return a copy of this selector with the same sampler under other options.

        Raises:
            InvalidInput: a sampler that needs other encoders or models than this one.
        """
        needs = ("needs_encoder", "needs_scan", "needs_llm")
        if any(getattr(sampler, need) != getattr(self.sampler, need) for need in needs):
            raise InvalidInput(f"sampler {sampler.name!r} needs other encoders or models than {self.sampler.name!r}")
        changed = copy(self)
        changed.sampler = sampler
        changed.__dict__.pop("origin", None)
        return changed

    def within(self, stretch: Stretch) -> Selector:
        """Return a copy of this selector that chooses from a part of each video, under the same identity.

        Use it for a question about a part of the video. The part then belongs to the question, like its text, and the
        facts of its row state it.
        """
        changed = copy(self)
        changed.__dict__["origin"] = self.origin
        changed._stretch = stretch
        return changed

    def select(
        self, question: Question, source: Path | VideoSource, *, bucket_of: BucketOf | None = None
    ) -> SelectionRow:
        """Return the row of `question`; the arguments are those of `attempt`.

        Raises:
            FocusEvalError: the video, a frame or the encoder's output is invalid.
        """
        return self.attempt(question, source, bucket_of=bucket_of).selected_row()

    def attempt(self, question: Question, source: Path | VideoSource, *, bucket_of: BucketOf | None = None) -> Outcome:
        """Choose the frames of `question`; only a RunError is raised.

        Args:
            source: the video; a path is opened, and closed again.
            bucket_of: length bucket of a duration in seconds, for questions that do not state their own.
        """
        run = _QuestionRun(question)
        try:
            run.session = self._session(question, run.meter)
            with self._opened(source, run.meter) as video:
                selection = self._choose(run, video)
            return Outcome(row=self._row(run, video, selection, bucket_of))
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (returned: one question never ends a run)
            # A failed attempt still costs; record its cost in the error row.
            is_paid = run.has_begun and (run.session is not None or bool(run.meter.asked))
            return Outcome(error=error, cost=self._cost(run) if is_paid else None)

    def recorded(self, question: Question, source: Path | VideoSource) -> SelectionRow:
        """Return the row of `question`, or one that records its error; `source` as in `attempt`."""
        return self.row_of(self.attempt(question, source), question)

    def row_of(self, outcome: Outcome, question: Question, *, bucket_of: BucketOf | None = None) -> SelectionRow:
        """Return the row of an outcome; after an error one that records it and its cost."""
        if outcome.error is None:
            return outcome.selected_row()
        return self.error_row(question, outcome.error, bucket_of=bucket_of, cost=outcome.cost)

    @contextmanager
    def _opened(self, source: Path | VideoSource, meter: Meter) -> Iterator[VideoSource]:
        if isinstance(source, VideoSource):
            yield source
            return
        with meter.stage("open"):
            reader = open_video(source, backend=self.backend, kept=self.store)
        with reader:
            yield OpenVideo(reader=reader)

    def _session(self, question: Question, meter: Meter) -> ModelSession | None:
        """A session with the model for one question; None if the sampler asks none."""
        if self.llm is None:
            return None
        model = self.llm
        if isinstance(model, AnswersFromEvidence):
            model = model.for_question(question.query, question.evidence_seconds, reply=self.sampler.example_reply)
        return ModelSession(model, store=self.store, meter=meter)

    def error_row(
        self,
        question: Question,
        error: BaseException,
        *,
        bucket_of: BucketOf | None = None,
        cost: SelectionCost | None = None,
    ) -> SelectionRow:
        """Return the row of a question whose selection failed, and log the error."""
        log.warning("%s %s: no selection by %s: %s", question.benchmark, question.id, self.sampler.name, error)
        query = query_text(question, self._query)
        return selection_row(question, self.origin, query=query, cost=cost, bucket_of=bucket_of, error=error)

    @property
    def changed_options(self) -> dict[str, object]:
        """Options of the sampler that are not at their defaults, without the scan encoder, which has no default."""
        default = {**type(self.sampler)().options, "scan_encoder": self.sampler.options.get("scan_encoder")}
        return {name: value for name, value in self._options.items() if value != default.get(name)}

    @property
    def _options(self) -> dict[str, object]:
        """Options of the sampler as rows state them: of the model's options only those that can change a reply."""
        options = self.sampler.options
        return {**options, "llm": llm_text(options["llm"])} if self.llm else options

    @property
    def scan_cost(self) -> float | None:
        """Cost of a scan forward in forwards of the main encoder; None without a scan encoder or if unknown."""
        return relative_cost(self.scan_encoder, self.encoder) if self.scan_encoder else None

    @property
    def device(self) -> str:
        """Readable name of the device that the encoder runs on."""
        return device_name(self.encoder.device if self.encoder else "cpu")

    def _choose(self, run: _QuestionRun, video: VideoSource) -> Selection:
        """Choose the frames of one question; if a frame cannot be decoded and may be skipped, choose without such."""
        meter = run.meter
        if video.counts_decoded:
            meter.count_decoded("all", 0)  # state a count even if the store has all frames and none is decoded
        query = query_text(run.question, self._query)
        if self.encoder is not None:
            use = self._use_of(self.encoder, self._encoding.feature_cache)
            run.pull = video.relevance(use, query, meter=meter)
        if self.scan_encoder is not None:
            use = self._use_of(self.scan_encoder, self._encoding.scan_feature_cache)
            run.scan = video.relevance(replace(use, stage="scan", decodes=self._scan_decode), query, meter=meter)
        look = video.look(self._given, batch_size=self._encoding.batch_size, meter=meter)
        try:
            selection = self._run_sampler(run, video, look)
            if self.skips_damaged and look is not None and selection.keyframes:
                look(np.unique(selection.keyframes), 1)  # decode all keyframes, since some may not have been pulled
        except DamagedFrame:
            if not self.skips_damaged:
                raise
            with meter.stage("decode"):
                damaged = video.damaged_frames()
            selection = self._run_sampler(run, video, look, damaged=damaged)
        return selection

    def _run_sampler(
        self, run: _QuestionRun, video: VideoSource, look: LookFn | None, *, damaged: IntArray | None = None
    ) -> Selection:
        """Run the sampler on one question and return the selection; `damaged` frames are left out."""
        question, meter, session = run.question, run.meter, run.session
        info = video.info
        if video.is_read:
            with meter.stage("open"):
                if self._scan_decode == "reference":
                    info = replace(info, reference_frames=video.reference_frames)
        if session is not None and look is not None:
            look = session.with_picture_times(look, video.clock)
        pull, scan_source = run.pull, run.scan
        part = self._part(info, video.clock, name=question.video)
        if damaged is not None:
            part = (part or whole_part(info, video.clock)).without(damaged)
            if part.n_frames == 0:
                raise VideoError(f"{question.video}: no frame of it can be decoded; download it again")
            if (reason := self.sampler.infeasible_reason(part.info, k=self.k)) is not None:
                raise InvalidInput(f"{question.video}: {self.sampler.name} would choose no frame: {reason}")
        if part is not None:
            info, look = part.info, part.look(look)
            pull, scan_source = part.source(pull), part.source(scan_source)
        # Make a generator for each question, so that results do not depend on the order of questions.
        rng = derived_rng(self.seed, question.benchmark, question.id, self.sampler.name)
        coarse_rng = None
        if self._coarse_seed == "video":
            # Leave the sampler out of this seed: all samplers then draw the same coarse frames, which are embedded
            # once.
            coarse_rng = derived_rng(self.seed, question.benchmark, question.video, "coarse")
        run.has_begun = True
        with meter.stage("select"):
            selection = self.sampler.select(
                info,
                k=self.k if part is None else min(self.k, part.n_frames),
                pull=pull,
                rng=rng,
                coarse_rng=coarse_rng,
                evidence_seconds=question.evidence_seconds,
                scan=scan_logits(scan_source) if self.scan_encoder else None,
                scan_cost=self.scan_cost,
                texts=self._texts(question, video.path),
                look=look,
                llm=session,
            )
        meter.add("select", selection.seconds_apart)
        return selection if part is None else replace(part.whole(selection), k=self.k)

    def _texts(self, question: Question, video_path: Path) -> QuestionTexts:
        """The texts of a question for the sampler, with subtitles if it needs them and there are any."""
        texts = texts_of(question, self._query)
        if not (self.sampler.needs_subtitles and question.subtitles):
            return texts
        videos = video_path.parents[len(PurePath(question.video).parts) - 1]
        lines = read_subtitles(videos.parent / question.subtitles, offset_seconds=question.subtitles_offset_seconds)
        return replace(texts, subtitles=in_order_of_time(lines))

    @property
    def _scan_decode(self) -> str:
        """Which frames are decoded for the scan, as in `ScanningSampler`; "all" without a scan encoder."""
        return str(self.sampler.options.get("scan_decode", "all")) if self.scan_encoder else "all"

    def info_of(self, video: VideoSource) -> VideoInfo:
        """Return length and rate of the part of the video that frames are chosen from, as the sampler sees it."""
        part = self._part(video.info, video.clock, name=str(video.path))
        return video.info if part is None else part.info

    def expected_pulls(self, info: VideoInfo, *, n_frames: int) -> int:
        """Return the number of frames to score and to scan for one question, for a progress bar: others may differ.

        Args:
            info: as `info_of` gives it.
            n_frames: of the file; where its rate varies, `info` counts slots of time, and several may show one frame.
        """
        sampler = self.sampler.at_cost(self.scan_cost)
        counts = (sampler.count_pulls(info, k=self.k), sampler.count_scans(info, k=self.k))
        return sum(min(count, n_frames) for count in counts)

    def n_frames_of(self, video: VideoSource) -> int:
        """Return the number of frames of the part of the video that frames are chosen from."""
        part = self._part(video.info, video.clock, name=str(video.path))
        return video.info.n_frames if part is None else part.n_frames

    def _part(self, info: VideoInfo, clock: FloatArray, *, name: str) -> VideoPart | None:
        return shown_part(info, clock, name=name, stretch=self._stretch, timeline=self._timeline)

    def _use_of(self, encoder: Encoder, feature_cache: FeatureCache | None) -> EncoderUse:
        return EncoderUse(
            encoder=encoder,
            store=self.store,
            feature_cache=feature_cache,
            batch_size=self._encoding.batch_size,
            shares=self._encoding.share_frames,
            batches=self._encoding.batches,
            compares_texts=self.sampler.needs_texts,
            needs_features=self.sampler.needs_logits or self.sampler.needs_embeddings,
            pixels=self._inexact_backend.get("video_backend", ""),
        )

    @property
    def _inexact_backend(self) -> dict[str, str]:
        """The video backend if its pixels are not exact, for the row and for keys of the store."""
        return {} if gives_exact_pixels(self.backend) else {"video_backend": self.backend}

    def _facts(self, query: str, selection: Selection) -> dict[str, object]:
        """Return facts that tables may note: cut queries, inexact pixels, a scripted model and so on.

        "pulls_off_grid" and "scans_off_grid" count frames that got the relevance of another recorded frame.
        """
        encoder, scan_encoder = self.encoder, self.scan_encoder
        facts: dict[str, object] = {
            **self._inexact_backend,
            "query_cut": _is_cut(encoder, query),
            "scan_query_cut": _is_cut(scan_encoder, query),
            "llm_is_scripted": isinstance(self.llm, AnswersFromEvidence),
            "texts_cut": [pulls.text for pulls in selection.text_pulls if _is_cut(encoder, pulls.text)],
        }
        if encoder is not None and scan_encoder is not None:
            is_same = (encoder.name, encoder.revision) == (scan_encoder.name, scan_encoder.revision)
            facts["scan_encoder_is_encoder"] = is_same
        if self._scan_decode != "all":
            facts["scan_decoded_all"] = cheap_frames(selection.video, self._scan_decode) is None
        if encoder is not None:
            facts["pulls_off_grid"] = encoder.n_unknown(selection.pulled_frames)
        if scan_encoder is not None:
            facts["scans_off_grid"] = scan_encoder.n_unknown(selection.scanned_frames)
        return {name: fact for name, fact in facts.items() if fact}

    def _row(
        self, run: _QuestionRun, video: VideoSource, selection: Selection, bucket_of: BucketOf | None
    ) -> SelectionRow:
        question, clock = run.question, video.clock
        times = clock[np.asarray(selection.keyframes, dtype=np.int64)]
        query = query_text(question, self._query)
        frames_part = known_selection(
            selection,
            times_seconds=[round(time, 6) for time in times.tolist()],
            frame_seconds=_frame_seconds(clock, selection, question) if video.is_read else None,
            keep_pulls=self._keep_pulls,
        )
        return selection_row(
            question,
            self.origin,
            frames_part,
            query=query,
            cost=self._cost(run),
            facts={**selection.facts, **self._facts(query, selection)},
            device=self.device,
            bucket_of=bucket_of,
        )

    def _cost(self, run: _QuestionRun) -> SelectionCost:
        """The cost of one question so far: forwards, seconds, decoded frames and the model's usage."""
        usage, meter = {} if run.session is None else dict(run.session.usage), run.meter
        for name, value in meter.asked.items():
            usage[name] = usage.get(name, 0) + value
        return SelectionCost(
            forwards=run.pull.forwards,
            scan_forwards=run.scan.forwards,
            seconds=meter.rounded(),
            decoded=meter.decoded,
            asked=usage,
            gmacs=self._gmacs,
        )

    @property
    def _gmacs(self) -> dict[str, float]:
        """10^9 multiply-adds by part of encoders and model, for the row; {} if unknown or unused."""
        if self.llm is None:
            return selection_gmacs(self.encoder, self.scan_encoder) if self.encoder or self.scan_encoder else {}
        gmacs = selection_gmacs(self._given, self.scan_encoder)
        return {**gmacs, **token_gmacs(self.llm, gmacs)}

    @cached_property
    def origin(self) -> Origin:
        """Sampler, encoders, options and identity, the same for every question."""
        identity, networks = self.identity, self._networks
        query = {"query": self._query} if "query" in identity else {}
        names = options_in_identity(self.sampler, scan_encoder=networks["scan_encoder"], llm=networks["llm"])
        return Origin(
            selection_id=identity_hash(identity),
            sampler=self.sampler.name,
            k=self.k,
            seed=self.seed,
            options={**{name: self._options[name] for name in names}, **query},
            changed_options={**self.changed_options, **query},
            **networks,
            role=self.sampler.role,
        )


@dataclass(frozen=True, kw_only=True)
class QuestionRequest:
    """One question about one video, and the selector that chooses its frames.

    Args:
        bucket_of: as in `Selector.attempt`.
    """

    selector: Selector
    question: Question
    bucket_of: BucketOf | None = None

    def attempt(self, video: VideoSource) -> Outcome:
        """Choose the frames of the question."""
        return self.selector.attempt(self.question, video, bucket_of=self.bucket_of)

    def row_of(self, outcome: Outcome) -> SelectionRow:
        """Return the row of an outcome, or one that records its error."""
        return self.selector.row_of(outcome, self.question, bucket_of=self.bucket_of)


def choose_on_video(
    reader: VideoReader,
    requests: Sequence[QuestionRequest],
    *,
    batcher: RendezvousBatcher | None = None,
    on_pulls: OnPulls | None = None,
    at_once: int | None = None,
) -> list[Outcome]:
    """Choose the frames of several questions about an open video; a frame that several need is embedded once.

    Args:
        batcher: serves the questions, even a single one; None makes one for several questions.
        on_pulls: as in `VideoSource`.
        at_once: questions that are served together, each in a thread; None for all.
    """
    video = OpenVideo(reader=reader, on_pulls=on_pulls)
    if batcher is None and len(requests) == 1:
        return [requests[0].attempt(video)]
    outcomes: list[Outcome] = []
    n_served = at_once or max(1, len(requests))
    for start in range(0, len(requests), n_served):
        server = batcher or RendezvousBatcher(reader)
        shared_video = replace(video, server=server)
        outcomes += server.run(
            [partial(request.attempt, shared_video) for request in requests[start : start + n_served]]
        )
    return outcomes


def _frame_seconds(clock: FloatArray, selection: Selection, question: Question) -> list[list[float]]:
    """`frame_seconds` of the selection's row; see `SelectionRow`."""
    if not rate_varies(clock, selection.video.fps):
        return []
    at_evidence = [int(np.abs(clock - seconds).argmin()) for seconds in question.evidence_seconds]
    ends = [end for clip in selection.clips for end in (clip.start, clip.stop)]
    used = np.intersect1d(np.arange(clock.size), [*selection.pulled_frames.tolist(), *ends, *at_evidence])
    return [[frame, round(clock[frame], 6)] for frame in used.tolist()]


def texts_of(question: Question, query: str) -> QuestionTexts:
    """Return the texts of `question` for a sampler, with its query in the form `query`."""
    return QuestionTexts(
        query=query_text(question, query),
        question=question.query,
        options=question.options,
    )


log = logging.getLogger(__name__)


def _is_cut(encoder: Encoder | None, query: str) -> bool:
    """True if there is an encoder and it reads only the start of `query`."""
    return encoder is not None and encoder.is_cut(query)
