"""Clock and servers of a discrete-event simulation."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable


class Clock:
    """Simulated clock that runs scheduled calls in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self._n += 1
        heapq.heappush(self._due, (self.now + seconds, self._n, do))

    def run(self) -> None:
        """Do everything that is due, in order of time, until nothing is."""
        while self._due:
            self.now, _, do = heapq.heappop(self._due)
            do()


class Servers:
    """Group of `n` equal servers with one queue, such as cores or Python's lock."""

    def __init__(self, clock: Clock, n: int) -> None:
        self._clock, self._free = clock, n
        self._queue: deque[Callable[[], None]] = deque()

    def take(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as a server is free, and hold that server until `give_back`."""
        if self._free:
            self._free -= 1
            then()
        else:
            self._queue.append(then)

    def give_back(self) -> None:
        """Release a server, or hand it to the call that has waited longest."""
        if self._queue:
            self._queue.popleft()()
        else:
            self._free += 1

    def serve(self, seconds: float, then: Callable[[], None]) -> None:
        """Wait for a server, hold it for `seconds`, then call `then`."""

        def end() -> None:
            self.give_back()
            then()

        self.take(lambda: self._clock.after(seconds, end))
