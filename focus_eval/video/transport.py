"""Checks that no packet of an MPEG transport stream is missing or written over (ISO 13818-1, 2.4.3)."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

_SYNC = 0x47
# Plain, with an arrival time before each packet (Blu-ray), with error correction after each.
_LENGTHS = ((188, 0), (192, 4), (204, 0))
# Flags and a clock.
_CLOCK_LENGTH = 7
# Between two recordings that were joined lie the tables that begin the second: that many packets back at most.
_MOST_TABLES = 8


def transport_fault(data: mmap.mmap, *, pid: int, n_packets: int) -> str | None:
    """Return what is wrong with the packets of stream `pid`, None where nothing is.

    The counter that each packet carries must go up by 1 modulo 16. It may jump where a new recording begins: behind a
    programme table, at the start of a picture that can be decoded by itself. No picture is spread over two units that
    each have a beginning, so there are at least as many pictures as beginnings.

    Args:
        n_packets: pictures that the demuxer found.
    """
    shape = next(((length, skip) for length, skip in _LENGTHS if _is_aligned(data, length, skip)), None)
    if shape is None:
        return None
    length, skip = shape
    n_packets = len(data) // length
    if len(data) % length:
        return f"it ends within a packet ({len(data)} bytes in packets of {length}): cut off"
    packets = np.frombuffer(data, dtype=np.uint8).reshape(n_packets, length)[:, skip:]
    head = packets[:, :6].copy()
    del packets
    if (head[:, 0] != _SYNC).any():
        return f"packet {int(np.argmax(head[:, 0] != _SYNC))} of {n_packets} is damaged"
    pids = (head[:, 1].astype(np.int64) & 31) << 8 | head[:, 2]
    n_starts = int((head[pids == pid, 1] & 0x40 > 0).sum())
    if n_starts > n_packets:
        return f"{n_starts - n_packets} of its pictures are missing"
    return _counter_fault(head, pids, pid)


def _is_aligned(data: mmap.mmap, length: int, skip: int) -> bool:
    places = range(skip, min(len(data), length * 8), length)
    return sum(data[place] == _SYNC for place in places) >= max(len(places) - 2, 1)


def ends_full(data: mmap.mmap, *, pid: int) -> bool:
    """Return whether the last packet of stream `pid` is full: its picture may continue in a missing packet.

    A muxer fills the last packet of a picture up with stuffing, unless the picture happens to fit (1 of 184).
    """
    shape = next(((length, skip) for length, skip in _LENGTHS if _is_aligned(data, length, skip)), None)
    if shape is None:
        return False
    length, skip = shape
    for start in range(len(data) - len(data) % length - length, -1, -length):
        head = data[start + skip : start + skip + 6]
        if (head[1] & 31) << 8 | head[2] == pid and head[3] & 0x10:
            # An adaptation field that carries a clock and no more does not fill up.
            return not head[3] & 0x20 or (head[5] & 0x10 > 0 and head[4] == _CLOCK_LENGTH)
    return False


def _counter_fault(head: NDArray[np.uint8], pids: NDArray[np.int64], pid: int) -> str | None:
    at = np.flatnonzero(pids == pid)
    flags = head[at]
    if (flags[:, 1] & 0x80).any():
        return f"packet {int(at[np.argmax(flags[:, 1] & 0x80)])} is marked as damaged by the receiver"
    has_adaptation = (flags[:, 3] & 0x20 > 0) & (flags[:, 4] > 0)
    is_announced = has_adaptation & (flags[:, 5] & 0x80 > 0)
    is_start = (flags[:, 1] & 0x40 > 0) & has_adaptation & (flags[:, 5] & 0x40 > 0)
    counter = (flags[:, 3] & 15).astype(np.int64)
    carries = flags[:, 3] & 0x10 > 0
    step = (np.diff(counter) - carries[1:]) % 16
    # A packet may be sent twice; its counter then stays.
    is_repeat = (np.diff(counter) == 0) & carries[1:]
    for jump in np.flatnonzero((step != 0) & ~is_repeat) + 1:
        before = pids[max(int(at[jump]) - _MOST_TABLES, 0) : at[jump]]
        if not is_announced[jump] and not (is_start[jump] and (before == 0).any()):
            return f"packets of the video are missing before packet {int(at[jump])} of {pids.size}"
    return None
