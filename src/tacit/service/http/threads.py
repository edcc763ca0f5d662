"""Work that takes long, in a thread that does not keep the process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

Result = TypeVar("Result")


async def aside(work: Callable[[], Result]) -> Result:
    """What ``work`` returns or raises; the event loop goes on meanwhile."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        done: Callable[[], None]
        try:
            done = partial(_settle, future, work())
        except BaseException as error:
            done = partial(_break, future, error)
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(done)

    threading.Thread(target=run, name="tacit-aside", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _break(future: asyncio.Future[Result], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def finished_in(seconds: float, work: Callable[[], object]) -> bool:
    """Whether ``work`` is over after so many seconds; it is left alone if not.  What it raises is raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="tacit-end", daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    return not thread.is_alive()
