"""Runs requests in an event loop of their own thread, so that they can be cancelled at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def in_background(
    produce: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]],
) -> Generator[T, None, None]:
    """Yields what ``produce`` emits; it keeps running while the consumer is busy.

    Closing the iterator cancels ``produce`` and waits for its end. Exceptions of ``produce`` are raised here.
    The consumer may have an event loop of its own, as notebooks do.
    """
    box: SimpleQueue[T | _End] = SimpleQueue()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        running.set_result((asyncio.get_running_loop(), task))
        await produce(box.put)

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            running.cancel()  # if the loop did not start
            box.put(_End(error))
        else:
            box.put(_End(None))

    thread = threading.Thread(target=work, name="kernelllm-endpoint", daemon=True)
    thread.start()
    try:
        while not isinstance(item := box.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        with suppress(CancelledError, RuntimeError):  # the loop never started, or has ended already
            loop, task = running.result()
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


async def aside(call: Callable[[], T], timeout: float) -> T:
    """Runs a blocking ``call`` in a thread and returns its result; the thread is abandoned after the timeout."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not future.done():
            set_it(value)

    def work() -> None:
        with suppress(RuntimeError):  # the loop has ended: the result is not needed
            try:
                result = call()
            except Exception as error:
                loop.call_soon_threadsafe(settle, future.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, future.set_result, result)

    threading.Thread(target=work, name="kernelllm-hub", daemon=True).start()
    return await asyncio.wait_for(future, timeout)
