"""Runs work ahead in threads; results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Queue
from threading import Event
from typing import Generic, TypeVar

T = TypeVar("T")


def in_order_ahead(tasks: Iterable[Callable[[], Iterable[T]]], *, n_workers: int, n_held: int = 4) -> Iterator[T]:
    """Yield what each task gives, task after task, while the tasks that follow already run in threads.

    The order and the values do not depend on the number of workers. Decoding releases Python's lock, so that tasks
    which decode (runs of one video, or one video each) really run side by side. Closing the iterator stops the
    workers. An error of a task is raised when its turn comes.

    Args:
        tasks: functions that give an iterable; each is called and iterated within one thread.
        n_workers: threads, so tasks in work at a time.
        n_held: results a task may have ready before it waits; at most `n_workers * (n_held + 2)` are held at all.
    """
    stop, left = Event(), iter(tasks)
    underway: deque[_Lane[T]] = deque()
    with ThreadPoolExecutor(max_workers=n_workers, thread_name_prefix="decode") as pool:
        try:
            while True:
                for task in left:
                    underway.append(_Lane.start(pool, task, stop, n_held=n_held))
                    if len(underway) > n_workers:
                        break
                if not underway:
                    return
                yield from underway[0].results()
                underway.popleft()
        finally:
            stop.set()
            for lane in underway:
                lane.abandon()


class _End:
    """Marks the end of a task's results."""


@dataclass
class _Lane(Generic[T]):
    """The results of one task on their way from its thread."""

    queue: Queue[T | _End]
    future: Future[None] | None = None
    ended: bool = field(default=False)

    @classmethod
    def start(cls, pool: ThreadPoolExecutor, task: Callable[[], Iterable[T]], stop: Event, *, n_held: int) -> _Lane[T]:
        lane: _Lane[T] = cls(Queue(maxsize=n_held))
        lane.future = pool.submit(lane._work, task, stop)
        return lane

    def _work(self, task: Callable[[], Iterable[T]], stop: Event) -> None:
        try:
            if not stop.is_set():
                for result in task():
                    self.queue.put(result)
                    if stop.is_set():
                        break
        finally:
            self.queue.put(_End())

    def results(self) -> Iterator[T]:
        while True:
            result = self.queue.get()
            if isinstance(result, _End):
                self.ended = True
                break
            yield result
        if self.future is not None:
            self.future.result()

    def abandon(self) -> None:
        """Let the thread run out: empty the queue until it has nothing more to put."""
        if self.ended or (self.future is not None and self.future.cancel()):
            return
        while not isinstance(self.queue.get(), _End):
            pass
