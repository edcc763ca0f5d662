"""Logs: one JSON object a line on standard error, without anything that a caller sent.

Logged of a request are the method, the route with its placeholders, the status and the time that it took.  Requests
that report rewards are not logged at all: that a reward came, and when, is data (docs/guides/serve.md, "What an
operator may look at").  Of an error the type and the place are logged, never its text, which may repeat what a caller
sent; errors of the store are about files, and their text helps.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, Final, TextIO

from tacit.errors import StoreDamaged, StoreFailed

_FLUSH_AT: Final = 200
"""Lines that are kept back at most."""


class JsonLog:
    """Writes log lines to a stream; request lines are written in groups."""

    def __init__(self, stream: TextIO | None = None, *, requests: bool = True) -> None:
        self._stream, self.requests, self._lock = stream or sys.stderr, requests, threading.Lock()
        self._lines: list[str] = []

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Log a request that was answered; its line is written out with others."""
        moment, took = time.time(), round(seconds * 1e6)
        self._lines.append(
            f'{{"time":{moment:.3f},"event":"request","method":"{method}","route":"{route}","status":{status},'
            f'"microseconds":{took}}}\n'
        )
        if len(self._lines) >= _FLUSH_AT:
            self.flush()

    def say(self, event: str, **details: Any) -> None:
        """Log any other event, at once."""
        self._lines.append(json.dumps({"time": round(time.time(), 3), "event": event, **details}) + "\n")
        self.flush()

    def failure(self, event: str, error: BaseException) -> None:
        """Log an error that is not the caller's: what kind, and where."""
        own = isinstance(error, StoreFailed | StoreDamaged) and "interrupted" not in str(error)
        told = {"words": str(error)} if own else {}
        self.say(event, error=_chain(error), places=_places(error), **told)

    def flush(self) -> None:
        """Write out the lines that were kept back."""
        with self._lock, suppress(OSError, ValueError):  # standard error was closed: the service goes on
            lines, self._lines = self._lines, []
            if lines:
                self._stream.write("".join(lines))
                self._stream.flush()


def _chain(error: BaseException) -> str:
    """Return the types of an error and of its causes."""
    names: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(names) < 5:
        names.append(type(seen).__name__)
        seen = seen.__cause__
    return " from ".join(names)


def _places(error: BaseException) -> list[str]:
    """Return the last places that an error went through: files and lines, without the text of the code."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
