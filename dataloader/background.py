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
    with the last item, with an error, with :meth:`stop`, or before the interpreter ends: one that
    came back from compiled code after that would end the process with SIGABRT.

    Example:
        >>> list(Background(range(3), ahead=2))
        [0, 1, 2]

    Args:
        items: iterated in the thread.
        ahead: how many items may exist that the consumer has not asked for, counting the one
            in the making: the bound on memory.
    """

    def __init__(self, items: Iterable[Item], ahead: int) -> None:
        """Start the thread."""
        if ahead < 1:
            raise ValueError(f"`ahead` should be at least 1. Received: `ahead` = {ahead}")
        self._items = items
        self._free = threading.Semaphore(ahead)
        self._ready: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._at_exit = weakref.finalize(self, _end, self._stopped, self._free, self._thread)

    def __iter__(self) -> Iterator[Item]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Item:
        """Wait for the next item, an error or the end."""
        item = self._ready.get()
        if item is _END or isinstance(item, _Raised):
            self._ready.put(item)  # whoever asks again gets the same answer
            if isinstance(item, _Raised):
                raise item.error
            raise StopIteration
        self._free.release()
        return item  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread, wait for it, and let go of what it made ahead."""
        self._at_exit.detach()
        _end(self._stopped, self._free, self._thread)
        while not self._ready.empty():
            self._ready.get()
        self._ready.put(_END)

    def _work(self) -> None:
        last: object = _END
        try:
            items = iter(self._items)
            while True:
                self._free.acquire()
                if self._stopped.is_set():
                    break
                try:
                    item = next(items)
                except StopIteration:
                    break
                self._ready.put(item)
                del item  # it is the consumer's now
        except BaseException as error:  # handed to the consumer, whatever it is
            last = _Raised(error)
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
        self._ready.put(last)


def _end(stopped: threading.Event, free: threading.Semaphore, thread: threading.Thread) -> None:
    stopped.set()
    free.release()
    if thread is not threading.current_thread():  # its own end may let go of the iterator
        thread.join()


class _Raised:
    """An error on its way to the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
