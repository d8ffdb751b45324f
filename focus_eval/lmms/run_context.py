"""The settings of a plugin run: where frames come from, how many, how they are read, where rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.shared_frames import SharedFrames
from focus_eval.lmms.sources import FrameSource
from focus_eval.rows.records import AnswerRow


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where frames come from, how many, how they are read, and where rows go.

    Args:
        source: gives the selections; None for the wrapper's own sampling.
        frames: keyframes asked for.
        options: frame policy, video reader, answer parsing.
        recorder: takes the rows.
        answered: rows by question id that need no asking again.
        shared: frames that are decoded for several selections together.
    """

    source: FrameSource | None
    frames: int
    options: SeamOptions
    recorder: Recorder
    answered: Mapping[str, AnswerRow]
    shared: SharedFrames | None = None
