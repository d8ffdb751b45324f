"""The contents of a simulation file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from focus_eval.errors import InvalidInput
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.registry import make_sampler, sampler_class
from focus_eval.simulation.worlds import World, world_of

# Frames a second that a percentage of frames stands for, whatever the file's rate, as in `even_cover`.
NOMINAL_FPS = 25.0
# Pulls a second of `focus` at its defaults: 3 in 16 seconds, and one a second in a quarter of the arms.
_FOCUS_RATE = 3 / 16 + 0.25


class SamplerEntry(BaseModel):
    """One sampler with options; with `budgets`, once more at each of the simulation's budgets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str
    options: dict[str, Any] = {}
    budgets: bool = False


class SimulationConfig(BaseModel):
    """Worlds, videos, samplers, K and budgets.

    Args:
        minutes: shortest and longest video.
        budgets: percent of the frames scored, of 25 frames a second.
        recorded: folder of a run whose relevance is used instead of simulated worlds.
        budget_k: the K at which budgets are compared; every K where it is empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "simulation"
    videos: int = Field(default=500, gt=0)
    seed: int = 0
    seeds: list[int] = Field(default=[0], min_length=1)
    minutes: tuple[float, float] = (1.0, 180.0)
    worlds: list[str | dict[str, Any]] = ["calibrated"]
    recorded: str = ""
    samplers: list[str | SamplerEntry] = Field(min_length=1)
    k: list[int] = Field(min_length=1)
    budgets: list[float] = []
    budget_k: list[int] = []
    baseline: str = "focus"

    @property
    def made_worlds(self) -> list[World]:
        """The worlds; their names are unique."""
        worlds = [world_of(entry) for entry in self.worlds]
        if len({world.name for world in worlds}) < len(worlds):
            raise InvalidInput(f"{self.name}: two worlds have one name; give the changed one a `name` of its own")
        if not 0 < self.minutes[0] <= self.minutes[1]:
            raise InvalidInput(f"{self.name}: minutes must ascend from above 0, got {list(self.minutes)}")
        return worlds

    def check_baseline(self) -> None:
        """Refuse a baseline that no sampler of the file, at its default options, can be compared with.

        Raises:
            InvalidInput: with the samplers that there are.
        """
        samplers = [sampler for sampler, _ in self.series()]
        if not any(sampler.name == self.baseline and sampler == type(sampler)() for sampler in samplers):
            names = ", ".join(sorted({sampler.name for sampler in samplers}))
            raise InvalidInput(
                f"{self.name}: the baseline {self.baseline!r} is not among the samplers at its default options "
                f"({names}); add it, or write `baseline: NAME`"
            )

    def series(self) -> list[tuple[FrameSampler, int]]:
        """Return every sampler with each K, budgets included, no pair twice."""
        pairs: dict[tuple[FrameSampler, int], None] = {}
        for entry in self.samplers:
            item = SamplerEntry(sampler=entry) if isinstance(entry, str) else entry
            sampler = make_sampler(item.sampler, **item.options)
            pairs.update({(sampler, k): None for k in self.k})
            for percent in self.budgets if item.budgets else []:
                made = make_sampler(item.sampler, **{**item.options, **options_at(item.sampler, percent)})
                pairs.update({(made, k): None for k in self.budget_k or self.k})
        return list(pairs)


def options_at(name: str, percent: float) -> dict[str, Any]:
    """Return the options with which a sampler scores `percent` of the frames of a long video at 25 frames a second.

    The FOCUS family takes longer arms and rarer pulls in one proportion, so that the share of coarse pulls stays.

    Raises:
        InvalidInput: a sampler whose number of pulls no option sets.
    """
    rate = NOMINAL_FPS * percent / 100
    known = sampler_class(name).__dataclass_fields__
    if "share" in known:
        return {"share": percent / 100}
    if "every_seconds" in known:
        return {"every_seconds": 1 / rate}
    if "seconds_per_fine_pull" in known:
        factor = _FOCUS_RATE / rate
        return {"clip_seconds": 16 * factor, "seconds_per_fine_pull": factor}
    raise InvalidInput(f"sampler {name!r} has no option for its number of pulls; leave `budgets` out")
