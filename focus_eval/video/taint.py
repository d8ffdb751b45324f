"""Decides which frames of a run may be given out: those that no damage can have reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_eval.video.decoder import Step
from focus_eval.video.index import FrameIndex

_NEVER = 1 << 62


class Taint:
    """Follows the decoding of one run of packets from a sync packet on.

    A frame may refer to any frame decoded before it, so it is sure only when all of those came out whole. It is lost
    when some packet up to its own was refused, gave no frame, or gave one that the decoder marks as damaged. Pictures
    shown before the sync packet's own (leading pictures) may need what lies before it: nothing that is shown later
    refers to them, so they are left out of account.

    Args:
        first_packet: the sync packet's position in the file.
        is_key: says whether a frame refers to no other; that of the sync packet must not. A container with a damaged
            index may mark others as sync packets, from which some decoders go on with whatever they decoded last.
            None at the file's start, where any frame may stand.
    """

    def __init__(self, index: FrameIndex, first_packet: int, *, is_key: Callable[[Any], bool] | None) -> None:
        self._index = index
        self._first_packet, self._is_key = first_packet, is_key
        self._first_ticks = max(int(index.packets.ticks[first_packet]), int(index.frame_ticks[0]))
        # Packets that must give a frame and have not yet, in the file's order.
        self._outstanding: dict[int, None] = {}
        self._lost_from = _NEVER

    def follow(self, step: Step) -> None:
        """Take account of one step of the decoder."""
        packets = self._index.packets
        if step.position is not None:
            is_leading = packets.ticks[step.position] < self._first_ticks
            if step.is_needed and not is_leading and not packets.is_hidden[step.position]:
                self._outstanding[step.position] = None
            if packets.is_corrupt[step.position] and not is_leading:
                self._lose(step.position)
            if step.is_refused and not is_leading:
                # A decoder with several threads complains late, of any packet that has not come out.
                self._lose(next(iter(self._outstanding), step.position))
        for frame in step.frames:
            self._came_out(frame)
        if step.position is None and self._outstanding:
            self._lose(next(iter(self._outstanding)))

    def _came_out(self, frame: Any) -> None:
        if frame.pts is None or frame.pts < self._first_ticks:
            return
        position = self._index.packet_at(frame.pts)
        if position is None:
            return
        self._outstanding.pop(position, None)
        is_first = position == self._first_packet
        if frame.is_corrupt or (is_first and self._is_key is not None and not self._is_key(frame)):
            self._lose(position)

    def _lose(self, position: int) -> None:
        self._lost_from = min(self._lost_from, position)

    def is_lost(self, packet: int) -> bool:
        """Return whether the frame of `packet` may be wrong."""
        return packet >= self._lost_from

    def is_sure(self, packet: int) -> bool:
        """Return whether the frame of `packet` is right; may become true with a later step."""
        return packet < self._lost_from and next(iter(self._outstanding), _NEVER) > packet
