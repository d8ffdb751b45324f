"""Writes warnings about a successful selection: reasons why its keyframes may not show what was asked for.

warning = selection_warning(row, encoder=encoder, reader=reader)
"""

from __future__ import annotations

import numpy as np

from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.default import better_encoder_hint
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.selection import NO_QUERY
from focus_eval.keyframes.video.reader import VideoReader

MAX_SHOWN_QUERY = 60


def selection_warning(row: SelectionRow, *, encoder: Encoder | None, reader: VideoReader) -> str:
    """Return all warnings about a selection, a sentence or two each; "" without one.

    Args:
        encoder: encoder that gave relevance; None if the sampler does not pull.
        reader: reader of the video.
    """
    warnings = [_vocabulary_warning(row.query, encoder), _standout_warning(row, encoder), *_fact_warnings(row)]
    is_known = isinstance(reader, VideoReader)  # a plugin's reader may not state how exact its pixels are
    if is_known and reader.shows_stored and not reader.appearance.is_plain:
        traits = "; ".join(reader.appearance.traits)
        warnings.append(f"The colours or the shape of its pictures are not those of a screen: {traits}.")
    return " ".join(filter(None, warnings))


def check_query(query: str, encoder: Encoder | None) -> None:
    """Raise InvalidInput for a query that the encoder cannot read."""
    if encoder is not None and query != NO_QUERY:
        encoder.known_neighbours(query)


def _vocabulary_warning(query: str, encoder: Encoder | None) -> str:
    """The warning that the query names something outside the encoder's vocabulary; "" if it does not."""
    if encoder is None or query == NO_QUERY or not (neighbours := encoder.known_neighbours(query)):
        return ""
    shown_query = query if len(query) <= MAX_SHOWN_QUERY else f"{query[: MAX_SHOWN_QUERY - 3]}..."
    return (
        f"The encoder {encoder.name} may not know {shown_query!r}; the nearest it knows: {', '.join(neighbours)}. "
        f"For an encoder that knows more: {better_encoder_hint()}."
    )


def _fact_warnings(row: SelectionRow) -> list[str]:
    """The warnings from the row's facts: damaged frames, a query that was cut, keyframes that look alike."""
    warnings = []
    if "damaged_frames" in row.facts:
        n_damaged, n_frames = row.facts["damaged_frames"]
        warnings.append(
            f"{n_damaged} of {n_frames} frames cannot be decoded: the file is damaged. The keyframes are of the other "
            f"{n_frames - n_damaged}."
        )
    names = {"query_cut": row.encoder, "scan_query_cut": row.scan_encoder}
    if cutting := [name for fact, name in names.items() if row.facts.get(fact)]:
        warnings.append(
            f"The query is longer than {' and '.join(cutting)} can read: its end was left out. Shorten the query."
        )
    if n_twins := row.facts.get("twins_left", 0):
        n, kind = len(row.keyframes or ()), "relevant frame" if row.n_scored else "frame"
        warnings.append(f"{n_twins} of {n} keyframes look like another one: no other {kind} shows something else.")
    return warnings


def _standout_warning(row: SelectionRow, encoder: Encoder | None) -> str:
    """The warning that no scored frame is relevant enough to show what the query names; "" if one is."""
    selection, bound = row.selection, encoder.least_shown if encoder else None
    if bound is None or selection is None or row.query == NO_QUERY or not selection.pulled_relevance.size:
        return ""
    best = float(np.max(selection.pulled_relevance))
    return f"Nothing stands out: the best relevance is {best:.2f}, below {bound:g}." if best < bound else ""
