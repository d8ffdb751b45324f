"""Makes a `Selector` from names and options of the sampler, its encoders and model, and a budget of scored frames."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.core.errors import DamagedFrame, InvalidInput
from focus_eval.core.options import checked_values, make, named_options, option
from focus_eval.core.types import IntArray, usable_path
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.default import DOWNLOAD_VARIABLE, default_encoder, is_download_allowed, offer_text
from focus_eval.keyframes.encoders.registry import make_encoder, make_scan_encoder
from focus_eval.keyframes.llms.registry import ready_llm
from focus_eval.keyframes.pipeline.relevance import decoded_batches
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.pipeline.source import OpenVideo
from focus_eval.keyframes.pipeline.stretch import Stretch
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video.reader import VideoReader

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.encoders.weights import Checkpoint

DEFAULT_SAMPLER, SUMMARY_SAMPLER = "even_cover", "uniform"
# Default number of scored frames: one per second for a video of ten minutes. With the small encoder they take about ten
# seconds of decoding and scoring on two cores.
DEFAULT_PULLS = 600
SNAP_SECONDS = 1.0
BUDGET_OPTIONS = ("pulls", "every_seconds", "budget_of", "share")

log = logging.getLogger("focus_eval")


def make_selector(
    sampler: str | FrameSampler | None,
    sampler_options: Mapping[str, object],
    encoder: str | Encoder | None,
    encoder_options: Mapping[str, object],
    budget: Budget,
    *,
    k: int,
    seed: int = 0,
    store: RelevanceStore | str | Path | None = None,
    backend: str = "pyav",
    stretch: Stretch | None = None,
    skip_damaged: bool = False,
    may_download: Callable[[Checkpoint], bool] | None = None,
) -> Selector:
    """Return the selector for these names and options; no encoder is made for a sampler that never pulls.

    Args:
        may_download: see `default_encoder`; by default the environment decides.

    Raises:
        FocusEvalError: a name or an option is invalid, options are given for an object, or two budgets are given.
    """
    instance = default_or_named(sampler, _checked_options("sampler", sampler_options))
    budget.check_alone(sampler_options if sampler is None else changed_options(instance))
    _checked_options("encoder", encoder_options)
    scorer: Encoder | None = None
    if instance.needs_encoder and encoder is None:
        if encoder_options:
            raise InvalidInput(f"options of the encoder ({', '.join(encoder_options)}) need its name: encoder=NAME")
        encoder = default_encoder(may_download or _allows_download)
    if instance.needs_encoder and isinstance(encoder, str):
        scorer = make_encoder(encoder, **encoder_options)
    elif instance.needs_encoder:
        _refuse_options("encoder", encoder_options)
        scorer = _checked_encoder(encoder)
    if store is not None:
        from focus_eval.keyframes.encoders.store import RelevanceStore

        store = store if isinstance(store, RelevanceStore) else RelevanceStore(usable_path(store, "store"))
    scan = make_scan_encoder(instance) if instance.needs_scan else None
    llm = ready_llm(instance) if instance.needs_llm else None
    return Selector(
        sampler=instance,
        encoder=scorer,
        scan_encoder=scan,
        llm=llm,
        k=k,
        seed=seed,
        store=store,
        backend=backend,
        # With "video", all queries of a video score the same coarse frames and share their embeddings.
        coarse_seed="video",
        stretch=stretch,
        timeline="seconds",
        usual_timeline="seconds",
        skip_damaged=skip_damaged,
    )


def _allows_download(checkpoint: Checkpoint) -> bool:
    """True if the environment allows the offered download; logs how to allow it if not."""
    if not is_download_allowed():
        _log_offer(offer_text(checkpoint))
    return is_download_allowed()


@cache
def _log_offer(offer: str) -> None:
    # This function is cached, so that a process logs the hint only once, however many selectors it makes.
    log.info("%s=1 downloads %s", DOWNLOAD_VARIABLE, offer)


def default_or_named(sampler: str | FrameSampler | None, options: Mapping[str, object]) -> FrameSampler:
    """Return the sampler; the default one gets `DEFAULT_PULLS` unless the options set a budget."""
    if sampler is None:
        budget = {} if {*options} & {*BUDGET_OPTIONS} else {"pulls": DEFAULT_PULLS}
        return _for_people(make_sampler(DEFAULT_SAMPLER, **budget, **options), DEFAULT_SAMPLER, options)
    if isinstance(sampler, str):
        return _for_people(make_sampler(sampler, **options), sampler, options)
    _refuse_options("sampler", options)
    if not isinstance(sampler, FrameSampler):
        raise InvalidInput(f"sampler must be a name or a made sampler, got {sampler!r}; see focus-eval list samplers")
    return sampler


def sampler_for(sampler: str | FrameSampler | None, *, has_query: bool) -> str | FrameSampler | None:
    """Return the sampler to make; without a query `SUMMARY_SAMPLER` by default.

    Raises:
        InvalidInput: no query for a sampler that compares frames with one.
    """
    if has_query:
        return sampler
    instance = make_sampler(sampler) if isinstance(sampler, str) else sampler
    if isinstance(instance, FrameSampler) and (instance.needs_llm or (instance.needs_encoder and instance.reads_query)):
        raise InvalidInput(f"sampler {instance.name!r} needs a query: say what to look for")
    return sampler or SUMMARY_SAMPLER


def _for_people(sampler: FrameSampler, name: str, options: Mapping[str, object]) -> FrameSampler:
    """The sampler with `distinct` and `snap_seconds` switched on, unless the text or the options set them."""
    option_names = {*options, *named_options(name, {})[1]}
    if "distinct" not in option_names:
        sampler = replace(sampler, distinct=True)
    return sampler if "snap_seconds" in option_names else replace(sampler, snap_seconds=SNAP_SECONDS)


def changed_options(sampler: FrameSampler) -> list[str]:
    """Return the options of `sampler` that are not at their defaults."""
    return [item.name for item in fields(sampler) if getattr(sampler, item.name) != item.default]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Number of frames to score, as a share of the video or by time; the alternative to options of the sampler.

    Args:
        share: share of the video's frames, in (0, 1].
        seconds: time in seconds that scoring may take on this machine.

    Raises:
        InvalidInput: both are given, or a value is out of range.
    """

    share: float | None = option(None, above=0, at_most=1)
    seconds: float | None = option(None, above=0)

    def __post_init__(self) -> None:
        """Raise InvalidInput for share and seconds together, or one that is not in its range."""
        if self.share is not None and self.seconds is not None:
            raise InvalidInput("give share or seconds of scoring, not both")
        checked_values("the scoring budget", self)

    @property
    def is_open(self) -> bool:
        """True if neither `share` nor `seconds` is set."""
        return self.share is None and self.seconds is None

    def check_alone(self, options: Iterable[str]) -> None:
        """Raise InvalidInput if sampler options set a budget as well."""
        if not self.is_open and (repeated := {*options} & {*BUDGET_OPTIONS}):
            raise InvalidInput(f"give share or seconds, or the sampler's option {min(repeated)}, not both")

    def apply_to(self, selector: Selector, reader: VideoReader) -> Selector:
        """Return `selector` with this budget as `pulls` of its sampler, so that its rows can be reproduced.

        Raises:
            InvalidInput: a sampler without the option `pulls`.
        """
        sampler = selector.sampler
        if self.is_open:
            return selector
        if "pulls" not in sampler.options:
            raise InvalidInput(
                f"sampler {sampler.name!r} has no option pulls, which share and seconds set (even_cover has): "
                "leave them out"
            )
        n_frames = selector.n_frames_of(OpenVideo(reader=reader))
        n = round(self.share * n_frames) if self.share is not None else frames_in(self.seconds or 0, selector, reader)
        options = {**sampler.options, "pulls": min(max(1, n), n_frames)}
        return selector.with_sampler(make(f"sampler {sampler.name!r}", type(sampler), options))


def frames_in(seconds: float, selector: Selector, reader: VideoReader) -> int:
    """Return how many frames can be decoded and encoded in `seconds`, estimated from the time that 16 frames take.

    If the encoder reads no frames, return the number of all frames.
    """
    encoder = selector.encoder
    if encoder is None or not encoder.reads_frames:
        return reader.info.n_frames
    even_frames = np.unique(np.linspace(0, reader.info.n_frames - 1, 16).astype(np.int64))
    try:
        a_frame = seconds_a_frame(encoder, reader, even_frames)
    except DamagedFrame:
        if not selector.skips_damaged:
            raise
        whole_frames = np.setdiff1d(even_frames, reader.damaged_frames())
        a_frame = seconds_a_frame(encoder, reader, whole_frames) if whole_frames.size else 1.0
    return int(seconds / a_frame)


def seconds_a_frame(encoder: Encoder, reader: VideoReader, frames: IntArray) -> float:
    """Return the seconds that decoding and encoding take for each of `frames`."""
    encoder.embed(reader.read(frames[:1]))  # loads the weights
    started = time.perf_counter()
    for _, pixels in decoded_batches(reader, frames, frames.size, Meter()):
        encoder.embed(pixels)
    return (time.perf_counter() - started) / frames.size


def _checked_options(owner: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """`options`; raises InvalidInput unless they are a mapping by names."""
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise InvalidInput(f"options of the {owner} must be a dict of names and values, got {options!r}")
    return options


def _refuse_options(owner: str, options: Mapping[str, object]) -> None:
    """Raise InvalidInput for options of an object that is made already."""
    if options:
        raise InvalidInput(f"{owner} is a made object, so its options ({', '.join(options)}) are set already")


def _checked_encoder(encoder: object) -> Encoder:
    """`encoder` if it is an Encoder; raises InvalidInput, with the fix, otherwise."""
    if isinstance(encoder, Encoder):
        return encoder
    is_older = hasattr(encoder, "relevance") or hasattr(encoder, "relevance_of")
    fix = "derive its class from focus_eval.Encoder" if is_older else "see focus-eval list encoders"
    raise InvalidInput(f"encoder must be a name or a made encoder, got {encoder!r}; {fix}")
