"""An iterator that works ahead of its consumer in a thread of its own."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

_END = object()


class Background(Generic[Item], Iterator[Item]):
    """Runs ``items`` in a thread, at most ``ahead`` finished or unfinished items ahead.

    What ``items`` raises is raised where the consumer asks for the next item. The thread ends
    with the last item, with an error, with :meth:`stop`, when nothing refers to the iterator any
    more, or before the interpreter ends: one that came back from compiled code after that would
    end the process with SIGABRT.

    Example:
        >>> list(Background(range(3), ahead=2))
        [0, 1, 2]

    Args:
        items: iterated in the thread; must not refer to this iterator.
        ahead: how many items may exist that the consumer has not asked for, counting the one
            in the making: the bound on memory.
    """

    def __init__(self, items: Iterable[Item], ahead: int) -> None:
        if ahead < 1:
            raise ValueError(f"`ahead` should be at least 1. Received: `ahead` = {ahead}")
        self._made = _Made(ahead)
        thread = threading.Thread(target=self._made.fill, args=(items,), daemon=True)
        thread.start()
        self._end = weakref.finalize(self, self._made.end, thread)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item = self._made.ready.get()
        if item is _END or isinstance(item, _Raised):
            self._made.ready.put(item)  # a later call gets the same answer
            if isinstance(item, _Raised):
                raise item.error
            raise StopIteration
        self._made.free.release()
        return item  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread, wait for it, and drop what it made ahead."""
        self._end()


class _Made:
    """What the thread and its consumer share; the thread does not refer to the iterator."""

    def __init__(self, ahead: int) -> None:
        self.free = threading.Semaphore(ahead)
        self.ready: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stopped = threading.Event()

    def fill(self, items: Iterable[object]) -> None:
        last: object = _END
        try:
            source = iter(items)
            while True:
                self.free.acquire()
                if self._stopped.is_set():
                    break
                try:
                    item = next(source)
                except StopIteration:
                    break
                self.ready.put(item)
                del item  # it is the consumer's now
        except BaseException as error:  # handed to the consumer, whatever it is
            last = _Raised(error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
        self.ready.put(last)

    def end(self, thread: threading.Thread) -> None:
        self._stopped.set()
        self.free.release()
        if thread is not threading.current_thread():  # its own end may drop the iterator
            thread.join()
        while not self.ready.empty():
            self.ready.get()
        self.ready.put(_END)


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error
