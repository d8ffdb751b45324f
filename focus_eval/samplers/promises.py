"""Checks a sampler's class and what it returns against the sampler contract."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np

from focus_eval.errors import BrokenContract
from focus_eval.types import IntArray, VideoInfo

Role = Literal["sampler", "control", "ceiling", "floor"]


class Declares(Protocol):
    """What a sampler says of itself; see `FrameSampler`."""

    name: ClassVar[str]
    may_return_fewer: ClassVar[bool]
    may_return_more: ClassVar[bool]
    may_repeat: ClassVar[bool]


def broken(promise: str, message: str) -> BrokenContract:
    """Return the error for a broken `promise`, one word that says which."""
    error = BrokenContract(message)
    error.promise = promise
    return error


def check_class(kind: type[Any], label: str) -> None:
    """Refuse a sampler class whose `choose` cannot be called with one request, or whose role does not exist.

    Raises:
        BrokenContract: with what was found and what is needed.
    """
    if kind.role not in get_args(Role):
        raise broken("class", f"{label}: role must be {' or '.join(get_args(Role))}, got {kind.role!r}")
    if kind.needs_evidence and kind.role != "ceiling":
        raise broken("class", f"{label}: only a sampler of role 'ceiling' may see the annotated evidence")
    signature = inspect.signature(kind.choose)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise broken(
            "class",
            f"{label}: choose{signature} must be choose(self, request); "
            "request.video, .k, .ledger, .rng and .coarse_rng are what it may use",
        ) from error


def checked_keyframes(
    sampler: Declares, choice: Any, *, video: VideoInfo, asked: int
) -> tuple[IntArray, dict[str, int]]:
    """Return the keyframes of `choice` in its order, int64 `(n,)`, and the facts about a count that was not asked.

    Raises:
        BrokenContract: not a `Choice`, no integers, outside the video, repeated, or more or fewer than asked without
            the class saying that it may; the message names the video's length and what to do.
    """
    name = sampler.name
    of_video = f"of a video of {video.n_frames} frames ({video.duration_seconds:.1f} s)"
    if not hasattr(choice, "keyframes") or not hasattr(choice, "facts"):
        raise broken("choice", f"{name}: choose must return a Choice, not {_described(choice)}")
    frames = _as_frames(choice.keyframes, name)
    outside = frames[(frames < 0) | (frames >= video.n_frames)]
    if outside.size:
        raise broken("range", f"{name} chose frame {outside[0]} {of_video}; it must lie in [0, {video.n_frames})")
    facts, n_unique = {}, int(np.unique(frames).size)
    if n_unique < frames.size:
        if not sampler.may_repeat:
            raise broken(
                "repeats",
                f"{name} chose {frames.size} keyframes, only {n_unique} of them unique, {of_video}; "
                "choose each once, or declare may_repeat = True if that is meant",
            )
        facts["unique_keyframes"] = n_unique
    if frames.size != asked:
        may, fewer_or_more = _may(sampler, frames.size < asked)
        if not may:
            raise broken(
                "count",
                f"{name} chose {frames.size} keyframes, {asked} were asked, {of_video}; "
                f"return request.n_wanted of them, or declare may_return_{fewer_or_more} = True if that is meant",
            )
        facts[f"returned_{fewer_or_more}"] = int(frames.size)
    if frames.size > asked:
        _check_pixels(name, choice.scales, n_chosen=frames.size, asked=asked)
    return frames, facts


def _check_pixels(name: str, scales: Any, *, n_chosen: int, asked: int) -> None:
    """Refuse more keyframes than asked that are not shrunk: with K times as many frames every sampler finds more."""
    pixels = float(n_chosen) if scales is None else float(np.square(np.asarray(scales, dtype=float)).sum())
    if pixels > asked * (1 + 1e-9):
        raise broken(
            "count",
            f"{name} chose {n_chosen} keyframes with the pixels of {pixels:.6g} full frames, {asked} were asked; "
            "more frames may be shown only if their `scales` make them smaller: sum(scales ** 2) is at most K",
        )


def _may(sampler: Declares, is_fewer: bool) -> tuple[bool, str]:
    return (sampler.may_return_fewer, "fewer") if is_fewer else (sampler.may_return_more, "more")


def _as_frames(keyframes: Any, sampler: str) -> IntArray:
    """Return `keyframes` as int64, `(n,)`; 0.9 is not frame 0."""
    try:
        frames = np.asarray(keyframes)
    except ValueError as error:
        raise broken("integers", f"{sampler}: keyframes must be a one-dimensional array of integers") from error
    if frames.ndim != 1:
        raise broken("integers", f"{sampler}: keyframes must be a one-dimensional array, got shape {frames.shape}")
    if frames.size and frames.dtype.kind not in "iu":
        raise broken(
            "integers",
            f"{sampler}: keyframes must be integers, the indices of frames; got {frames[0]!r} ({frames.dtype}); "
            "a time in seconds is frame round(seconds * request.video.fps)",
        )
    return frames.astype(np.int64)


def _described(value: Any) -> str:
    return "None (is a `return` missing?)" if value is None else f"a {type(value).__name__}"
