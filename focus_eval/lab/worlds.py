"""Parameters of the worlds of simulated relevance, and of the channels of scan encoders."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.options import declared_types, make, parse_named, read_options
from focus_eval.keyframes.encoders.registry import ENCODERS

Range = tuple[float, float]

# Shares at which `Quantiles` are given. Between two shares log(1 + seconds) is linear, and the last quantile is also
# the maximum.
SHARES = (0.0, 0.1, 0.5, 0.9, 0.99)
Quantiles = tuple[float, float, float, float, float]
ALL_LENGTHS = float("inf")


@dataclass(frozen=True, kw_only=True)
class EvidenceShape:
    """The annotated evidence of one benchmark.

    Args:
        counts: shares of the questions with 1, with 2, with 3, and with 4 or more moments or intervals.
        seconds: quantiles of the length of an interval.
        spans: pairs (limit, quantiles) for videos shorter than `limit` seconds. The quantiles are of the seconds from a
            question's first moment to its last.
    """

    counts: tuple[float, ...]
    seconds: Quantiles
    spans: tuple[tuple[float, Quantiles], ...] = ()

    def span_quantiles(self, video_seconds: float) -> Quantiles:
        """Return the quantiles of the span in a video of that length."""
        return next(quantiles for limit_seconds, quantiles in self.spans if video_seconds < limit_seconds)


# Computed from the annotations that docs/simulation.md names. LongVideoBench annotates moments without lengths, so its
# lengths are those of KFS-Bench's segments, which are not known above the 90 % quantile.
EVIDENCE_SHAPES = {
    "cgbench": EvidenceShape(
        counts=(0.86, 0.106, 0.017, 0.017),
        seconds=(1, 2, 8, 34, 136),
        spans=((ALL_LENGTHS, (2, 5, 20, 118, 1259)),),
    ),
    "lvbench": EvidenceShape(counts=(1.0,), seconds=(0, 0, 17, 900, 6058)),
    "vue_tr_v2": EvidenceShape(
        counts=(0.789, 0.101, 0.041, 0.069),
        seconds=(0.5, 1, 8, 84, 1276),
        spans=((ALL_LENGTHS, (7, 37, 365, 2490, 3932)),),
    ),
    "longvideobench": EvidenceShape(
        counts=(0.465, 0.391, 0.092, 0.052),
        seconds=(1, 1, 6, 82, 82),
        spans=(
            (180, (0.2, 1, 4.4, 18, 45)),
            (1200, (0, 1.7, 42, 350, 767)),
            (ALL_LENGTHS, (0, 1.5, 16, 719, 1999)),
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """The parameters of simulated relevance. Heights are in standard deviations of the background.

    Relevance is `sigmoid(location + scale * (exp(skew * x) - 1) / skew)` of a latent `x`, as a softmax of two
    image-text-matching logits is. Away from events `x` is a stationary background of variance 1.

    Args:
        half_life_seconds: lag at which the smooth part of the background keeps half of its correlation.
        shot_share: share of the background's variance that jumps at cuts, in [0, 1]; 0: no cuts.
        shot_seconds: median length of a shot.
        n_looks: number of scenes between which a video changes; every shot shows one of them. 0: every shot is new.
        events: smallest and largest number of events of a question.
        event_seconds: shortest and longest event, log-uniform.
        event_is_shot: True if an event replaces the background between two cuts, False if it is added to the
            background.
        strength, strength_spread: mean height of a question's events, and its spread over questions.
        event_spread: spread of the events of one question around its mean.
        distractors_per_minute: number of look-alikes per minute: as high as events, but no evidence.
        related_height, related_seconds: height of a raised stretch around each event, and range of its length.
        noise: standard deviation of the part that changes from frame to frame.
        evidence_at: "middle" of the event, or "anywhere" in it.
        cluster_seconds: range of the length, log-uniform, of one stretch that holds all events of a question. The
            stretch replaces `related_seconds`. None: events lie anywhere in the video.
        evidence: benchmarks whose evidence is imitated (see `EVIDENCE_SHAPES`), each for an equal share of the
            questions. Replaces `events`, `event_seconds`, `evidence_at` and `cluster_seconds`; only look-alikes still
            take their lengths from `event_seconds`.
        encoder_quality: factor on the height of everything related to the question.
        location, scale, skew: parameters of the marginal; with skew above 0 the long tail is at high relevance.
        location_spread: standard deviation of the location over questions.
        blind: share of the questions whose evidence leaves no trace in any encoder, in [0, 1].
        is_fitted: True if events, look-alikes and backgrounds are drawn by the rules of `measured` (see
            `_fitted_trace`). These rules ignore `n_looks`, `events`, `event_seconds`, `event_is_shot`,
            `related_height`, `evidence_at` and `cluster_seconds`, and count `noise` as a part of the background's
            variance.
    """

    name: str
    half_life_seconds: float = 5.0
    shot_share: float = 0.0
    shot_seconds: float = 8.0
    n_looks: int = 0
    events: tuple[int, int] = (1, 4)
    event_seconds: Range = (0.5, 8.0)
    event_is_shot: bool = False
    strength: float = 2.5
    strength_spread: float = 0.7
    event_spread: float = 0.5
    distractors_per_minute: float = 0.2
    related_height: float = 0.0
    related_seconds: Range = (30.0, 120.0)
    noise: float = 0.3
    evidence_at: str = "anywhere"
    encoder_quality: float = 1.0
    location: float = -2.5
    scale: float = 1.0
    skew: float = 0.3
    cluster_seconds: Range | None = None
    evidence: tuple[str, ...] | None = None
    location_spread: float = 0.0
    blind: float = 0.0
    is_fitted: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidInput for a parameter outside its range, or for parameters that exclude each other."""
        positive = (self.half_life_seconds, self.shot_seconds, self.scale, self.skew, *self.event_seconds)
        if min(positive) <= 0:
            raise InvalidInput(f"world {self.name!r}: lengths, half-life, scale and skew must be above 0")
        if not 0 <= self.shot_share <= 1 or not 1 <= self.events[0] <= self.events[1]:
            raise InvalidInput(f"world {self.name!r}: shot_share lies in [0, 1], events are at least 1, ascending")
        if self.evidence_at not in ("middle", "anywhere"):
            raise InvalidInput(f"world {self.name!r}: evidence_at is middle or anywhere, got {self.evidence_at!r}")
        if self.cluster_seconds is not None and (self.evidence is not None or min(self.cluster_seconds) <= 0):
            raise InvalidInput(f"world {self.name!r}: cluster_seconds are above 0, and not given with evidence")
        if not 0 <= self.blind <= 1:
            raise InvalidInput(f"world {self.name!r}: blind is a share of the questions in [0, 1], got {self.blind:g}")
        if self.is_fitted and (ignored := [key for key in _NOT_FITTED if getattr(self, key) != getattr(World, key)]):
            raise InvalidInput(f"world {self.name!r}: fitted events do not depend on {', '.join(ignored)}")
        if self.is_fitted and (not self.evidence or self.shot_share + self.noise**2 > 1):
            raise InvalidInput(f"world {self.name!r}: needs evidence, and shot_share + noise² at most 1")
        for name in self.evidence or ():
            if name not in EVIDENCE_SHAPES:
                raise unknown_name("evidence", name, EVIDENCE_SHAPES)

    @property
    def least_seen_seconds(self) -> float:
        """Shortest time that an event is visible: 1 s in worlds with `evidence`, whose events may last 0 s; else 0."""
        return 1.0 if self.evidence else 0.0

    @property
    def values(self) -> dict[str, object]:
        """Parameters as JSON values, without unset ones, so that a parameter added later does not change ids."""
        values = {
            key: value for key, value in asdict(self).items() if value is not None and (value or key not in _ADDED)
        }
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


_ADDED = ("location_spread", "blind", "is_fitted")
_NOT_FITTED = (
    "n_looks",
    "events",
    "event_seconds",
    "event_is_shot",
    "related_height",
    "evidence_at",
    "cluster_seconds",
)
_SMOOTH = World(name="smooth")
# Fitted to relevance of an earlier demo, scored every half second (docs/simulation.md): logits without skew, shots that
# explain most of the variance, and questions of very different strength.
_CALIBRATED = World(
    name="calibrated",
    shot_share=0.88,
    shot_seconds=9.4,
    n_looks=10,
    events=(1, 2),
    event_seconds=(3.0, 8.0),
    event_is_shot=True,
    strength=2.4,
    strength_spread=1.65,
    event_spread=0.25,
    distractors_per_minute=0.0,
    noise=0.25,
    evidence_at="middle",
    location=-4.6,
    scale=2.5,
    skew=0.01,
)
# Evidence with real lengths and distances. Relevance is as in `calibrated`, but an event is added to the background.
_REALISTIC = replace(_CALIBRATED, name="realistic", event_is_shot=False, evidence=tuple(EVIDENCE_SHAPES))
# Fitted to public selections of LongVideoBench, one frame a second (docs/simulation.md).
_MEASURED = World(
    name="measured",
    is_fitted=True,
    half_life_seconds=5.0 * math.log(2.0),
    shot_share=0.33,
    shot_seconds=4.5,
    noise=math.sqrt(0.07),
    strength=3.2,
    strength_spread=1.85,
    event_spread=0.5,
    distractors_per_minute=0.26,
    evidence=("longvideobench",),
    location=-1.85,
    location_spread=2.35,
    scale=1.7,
    skew=1e-6,
)
_ALL = (
    _REALISTIC,
    _MEASURED,
    _CALIBRATED,
    _SMOOTH,
    replace(_SMOOTH, name="cuts", shot_share=0.6, event_is_shot=True),
    replace(_SMOOTH, name="flashes", event_seconds=(0.5, 2.0)),
    replace(_SMOOTH, name="distractors", distractors_per_minute=2.0),
    replace(_SMOOTH, name="weak", strength=1.2),
    replace(_SMOOTH, name="related", related_height=1.5),
    replace(_SMOOTH, name="clustered", events=(3, 6), cluster_seconds=(60.0, 180.0), related_height=1.5),
)
WORLDS: dict[str, World] = {world.name: world for world in _ALL}


def world_of(entry: str | dict[str, object]) -> World:
    """Return a world by its name, with changed parameters if `entry` states any.

    Args:
        entry: "realistic", "realistic:blind=0.65" or `{world: realistic, name: .., blind: 0.65}`.

    Raises:
        UnknownName: no such world or parameter.
        InvalidInput: a value outside its range.
    """
    if isinstance(entry, str):
        name, parameters = parse_named(entry)
        values = read_options(f"world {name!r}", declared_types(World), parameters)
        values |= {"world": name, **({"name": entry} if parameters else {})}
    else:
        values = dict(entry)
    base = str(values.pop("world", "calibrated"))
    if base not in WORLDS:
        raise unknown_name("world", base, WORLDS)
    for name in values:
        if name not in World.__dataclass_fields__:
            raise unknown_name(f"parameter of world {base!r}:", name, World.__dataclass_fields__)
    changes: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return replace(WORLDS[base], **changes)


# Multiply-adds for an image: those of CLIP ViT-B/32 divided by those of BLIP's ViT-L/16 at 384 pixels.
CLIP_B32_OVER_BLIP_L = 1 / 43


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A simulated scan encoder.

    Args:
        rho: correlation of its background with that of the main encoder, in [0, 1].
        q: height of an event, and of everything related to the question, divided by that for the main encoder.
        cost: cost of a forward divided by that of the main encoder.
        location, scale: parameters of the marginal of its relevance; None takes those of the main encoder.
    """

    rho: float = 0.3
    q: float = 0.6
    cost: float = CLIP_B32_OVER_BLIP_L
    location: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for a parameter outside its range."""
        if not (0 <= self.rho <= 1 and self.q >= 0 and self.cost > 0):
            raise InvalidInput(f"a channel needs rho in [0, 1], q from 0 and cost above 0, got {asdict(self)}")


CHANNELS = {
    "fair": Channel(),
    "good": Channel(rho=0.5, q=1.0),
    "bad": Channel(rho=0.3, q=0.3),
    "useless": Channel(rho=0.0, q=0.0),
    # Fitted with the world `measured` to public selections.
    "clip_b32": Channel(rho=0.24, q=0.54, location=-2.7, scale=0.1),
    "wfs_sb": Channel(rho=0.24, q=0.96, location=-1.0, scale=1.2),
}


def channel_name(text: str) -> str:
    """Return the channel that a sampler's option `scan_encoder` names in a simulation.

    An empty option, or the name of an encoder of real videos, gives "fair".
    """
    return "fair" if not text or parse_named(text)[0] in ENCODERS.names() else text


def channel_of(text: str) -> Channel:
    """Return the channel that `text` names, e.g. "fair", or changed: "fair:cost=0.25", "good:rho=0.4,q=0.7".

    Raises:
        UnknownName: no such channel or parameter.
        InvalidInput: a value outside its range.
    """
    name, changes = parse_named(text)
    if name not in CHANNELS:
        raise unknown_name("scan channel", name, CHANNELS)
    return make(f"scan channel {name!r}", Channel, {**asdict(CHANNELS[name]), **changes})
