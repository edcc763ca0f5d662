"""Servers under test, each in a process of its own."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tacit.errors import ServiceUnavailable
from tacit.service.http.keys import ADMIN_FILE

_START: Final = 300.0
"""Seconds that a server may need until it listens."""
_END: Final = 60.0
_FALL: Final = 1.0
"""Seconds that a process which has closed its connections needs until it has ended."""
_SAID: Final = "listening on "
_WORDS: Final = 2_000
"""Characters of what a server has said last that are repeated when it fails."""


class ServerProcess:
    """A server that listens when this is made and has ended when its block is left."""

    def __init__(self, name: str, *arguments: str, log: Path) -> None:
        self.name, self._log = name, log
        with log.open("ab") as words:
            self.process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=words)
        self.port = self._listening()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.process.pid

    def _listening(self) -> int:
        """Wait until it says where it listens."""
        stream = self.process.stdout
        ready = stream is not None and select.select([stream], [], [], _START)[0]
        line = stream.readline().decode() if stream is not None and ready else ""
        if not line.startswith(_SAID):
            self.stop(signal.SIGKILL)
            raise ServiceUnavailable(f"{self.name} did not start{self.last_words()}")
        return int(line.rpartition(":")[2])

    def last_words(self) -> str:
        """The end of what it has said, for the end of a sentence; nothing while it runs."""
        try:
            code = self.process.wait(_FALL)
        except subprocess.TimeoutExpired:
            return ""
        said = self._log.read_text(errors="replace").strip()[-_WORDS:]
        return f"; it ended with exit code {code} and said: {said or 'nothing'}"

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(by)
        try:
            code = self.process.wait(_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def echo_server(folder: Path) -> ServerProcess:
    """The bare echo."""
    program = Path(__file__).with_name("echo.py")
    return ServerProcess("the bare echo", str(program), str(folder), log=folder / "echo.log")


class TacitServer(ServerProcess):
    """`tacit serve` on a store of its own, or on a database that nobody has served before."""

    def __init__(self, folder: Path, database: str | None = None, *options: str) -> None:
        self.data = folder / "store"
        place = () if database is None else ("--database", database)
        options = ("--data", str(self.data), "--port", "0", "--no-log-requests", *place, *options)
        super().__init__("tacit serve", "-m", "tacit", "serve", *options, log=folder / "serve.log")

    @property
    def key(self) -> str:
        """The admin key, which is made at the first start."""
        try:
            return (self.data / ADMIN_FILE).read_text().strip()
        except FileNotFoundError:
            raise ServiceUnavailable(
                "the database has keys already: measure on an empty one (CREATE DATABASE), which is filled with load"
            ) from None
