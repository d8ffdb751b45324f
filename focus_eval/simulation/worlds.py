"""What simulated videos are like: background, events, and what the encoder sees of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from focus_eval.errors import InvalidInput, unknown_name

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class World:
    """The parameters of simulated relevance. Heights are in standard deviations of the background.

    Relevance is `sigmoid(location + scale * (exp(skew * x) - 1) / skew)` of a latent `x`, as a softmax of two
    image-text-matching logits is. Away from events `x` is a stationary background of variance 1.

    Args:
        half_life_seconds: lag at which the smooth part of the background keeps half of its correlation.
        shot_share: share of the background's variance that jumps at cuts, in [0, 1]; 0: no cuts.
        shot_seconds: median length of a shot.
        n_looks: how many scenes a video returns to; every shot shows one of them. 0: every shot is new.
        events: fewest and most events of a question.
        event_seconds: shortest and longest event, log-uniform.
        event_is_shot: an event replaces the background between two cuts; else it is added to it.
        strength, strength_spread: mean height of a question's events, and its spread over questions.
        event_spread: spread of the events of one question around its mean.
        distractors_per_minute: moments as high as events that are no evidence.
        related_height, related_seconds: the event lies somewhere in a stretch of so many seconds raised by so much.
        noise: standard deviation of what changes from frame to frame.
        evidence_at: "middle" of the event, or "anywhere" in it.
        encoder_quality: factor on every height that has to do with the question.
        location, scale, skew: of the marginal; skew above 0 has its tail at high relevance.
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

    def __post_init__(self) -> None:
        positive = (self.half_life_seconds, self.shot_seconds, self.scale, self.skew, *self.event_seconds)
        if min(positive) <= 0:
            raise InvalidInput(f"world {self.name!r}: lengths, half-life, scale and skew must be above 0")
        if not 0 <= self.shot_share <= 1 or not 1 <= self.events[0] <= self.events[1]:
            raise InvalidInput(f"world {self.name!r}: shot_share lies in [0, 1], events are at least 1, ascending")
        if self.evidence_at not in ("middle", "anywhere"):
            raise InvalidInput(f"world {self.name!r}: evidence_at is middle or anywhere, got {self.evidence_at!r}")

    @property
    def values(self) -> dict[str, Any]:
        """Every parameter, JSON values only."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


_SMOOTH = World(name="smooth")
# Fitted to the relevance of every half second of the demo's videos to its questions (docs/simulation.md): no skew once
# it is a logit, shots that explain most of the variance, and questions of very different strength.
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
_ALL = (
    _CALIBRATED,
    _SMOOTH,
    replace(_SMOOTH, name="cuts", shot_share=0.6, event_is_shot=True),
    replace(_SMOOTH, name="flashes", event_seconds=(0.5, 2.0)),
    replace(_SMOOTH, name="distractors", distractors_per_minute=2.0),
    replace(_SMOOTH, name="weak", strength=1.2),
    replace(_SMOOTH, name="related", related_height=1.5),
)
WORLDS: dict[str, World] = {world.name: world for world in _ALL}


def world_of(entry: str | dict[str, Any]) -> World:
    """Return the world of that name, or `{world: NAME, name: .., parameter: value}`, a named one with other parameters.

    Raises:
        UnknownName: no such world or parameter.
        InvalidInput: a value outside its range.
    """
    values = {"world": entry} if isinstance(entry, str) else dict(entry)
    base = str(values.pop("world", "calibrated"))
    if base not in WORLDS:
        raise unknown_name("world", base, WORLDS)
    for name in values:
        if name not in World.__dataclass_fields__:
            raise unknown_name(f"parameter of world {base!r}:", name, World.__dataclass_fields__)
    changes: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return replace(WORLDS[base], **changes)
