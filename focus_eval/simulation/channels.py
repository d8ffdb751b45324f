"""Simulated scan encoders: their correlation with the main encoder and their cost per frame."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.options import make, parse_named
from focus_eval.encoders.registry import ENCODERS

# CLIP ViT-B/32 over BLIP's ViT-L/16 at 384 pixels, in multiply-adds of an image.
CLIP_B32_OVER_BLIP_L = 1 / 43


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A simulated scan encoder.

    Args:
        rho: correlation of the two backgrounds, in [0, 1].
        q: height of an event, and of everything related to the question, divided by that for the main encoder.
        cost: cost of a forward divided by that of the main encoder.
        location, scale: of its marginal; None for the main encoder's.
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

    "fair" for an empty option, and for an encoder of real videos.
    """
    return "fair" if not text or parse_named(text)[0] in ENCODERS.names() else text


def channel_of(text: str) -> Channel:
    """Return the channel `text`; with changed parameters: "fair:cost=0.25" or "good:rho=0.4,q=0.7".

    Raises:
        UnknownName: no such channel or parameter.
        InvalidInput: a value outside its range.
    """
    name, changes = parse_named(text)
    if name not in CHANNELS:
        raise unknown_name("scan channel", name, CHANNELS)
    return make(f"scan channel {name!r}", Channel, {**asdict(CHANNELS[name]), **changes})
