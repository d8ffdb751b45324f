"""Gives the subtitles of LongVideoBench that are spoken while the shown frames are on screen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from focus_eval.errors import InvalidInput

_FIELDS = ("subtitle_path", "starting_timestamp_for_subtitles", "duration")


def subtitles_near(document: Mapping[str, Any], times_seconds: Sequence[float]) -> str:
    """Return the lines spoken at one of the times, in the order of the video, one per line; "" where there are none.

    Which lines these are is lmms-eval's own rule for its `_i` tasks: a line belongs to a frame that lies strictly
    within it, and a line shorter than a second is taken as one second around its middle. The task itself applies the
    rule to 16 uniform frames whatever the model is shown; here it is applied to the frames that are.

    Args:
        document: of LongVideoBench, with `subtitle_path` and `starting_timestamp_for_subtitles`.
        times_seconds: presentation times of the shown frames.

    Raises:
        InvalidInput: no such field, no such file, or one that cannot be read.
    """
    from lmms_eval.tasks.longvideobench.utils import insert_subtitles_into_frames

    where = f"document {document.get('id', '')}"
    missing = [name for name in _FIELDS if name not in document]
    if missing:
        raise InvalidInput(f"{where}: subtitles=true needs LongVideoBench's documents; it has no {', '.join(missing)}")
    path = Path(_folder(os.getenv("HF_HOME"))) / document["subtitle_path"]
    try:
        placed = insert_subtitles_into_frames(
            sorted(times_seconds),
            _lines(path),
            document["starting_timestamp_for_subtitles"],
            document["duration"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{where}: subtitles {path} cannot be read ({error})") from error
    # It puts a mark where each frame goes; the frames reach the model by another way.
    return "\n".join(line for line in placed.split("\n") if line != "<image>")


# Several questions ask about one video.
@lru_cache(maxsize=64)
def _lines(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _folder(hf_home: str | None) -> str:
    """Return the folder lmms-eval looks in, which it works out from a YAML file for every document."""
    from lmms_eval.tasks.longvideobench.utils import _resolve_dataset_dir

    return str(_resolve_dataset_dir("longvideobench_val_i.yaml", "subtitle_subdir", "subtitles")[0])
