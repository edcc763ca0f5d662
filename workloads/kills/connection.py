"""A client's connection to a service that is killed now and then: a request is made again until it is answered."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tacit.service.http.keys import ADMIN_FILE

HOST: Final = "127.0.0.1"
_PATIENCE: Final = 120.0
_BREATH: Final = 0.005
"""Seconds between attempts to connect."""


@dataclass(frozen=True)
class Address:
    """Where the service is, whenever it is there."""

    port: int
    store: Path

    def key(self) -> str:
        """The admin's key; empty before the first start has made one."""
        path = self.store / ADMIN_FILE
        return path.read_text().strip() if path.exists() else ""


class Answer(NamedTuple):
    """What was answered."""

    status: int
    body: bytes
    again: bool
    """Whether the same was sent before and not answered: it may have been carried out then."""

    @property
    def document(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


class NoAnswerError(Exception):
    """The service went away."""


class Connection:
    """One request at a time."""

    def __init__(self, address: Address, patience: float = _PATIENCE) -> None:
        self._address = address
        self._http = http.client.HTTPConnection(HOST, address.port, timeout=patience)

    def insist(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask until there is an answer, across as many kills as it takes.

        503 is none: nothing was changed, and the same may be asked again.  Nor is 401 for a key that a first start has
        replaced meanwhile.
        """
        end, again = time.monotonic() + _PATIENCE, False
        while time.monotonic() < end:
            key = self._address.key()
            if self._connected():
                try:
                    answer = self._once(method, path, body, key)
                except NoAnswerError:
                    again = True
                else:
                    if answer.status != 503 and (answer.status != 401 or key == self._address.key()):
                        return answer._replace(again=again)
            time.sleep(_BREATH)
        raise TimeoutError(f"{method} {path} was not answered in {_PATIENCE:g} seconds")

    def _connected(self) -> bool:
        """Whether the service listens; what was not sent was not carried out."""
        if self._http.sock is None:
            try:
                self._http.connect()
            except OSError:
                self._http.close()
        return self._http.sock is not None

    def _once(self, method: str, path: str, body: Any, key: str) -> Answer:
        try:
            self._send(method, path, body, key)
            with self._http.getresponse() as response:
                return Answer(response.status, response.read(), False)
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise NoAnswerError from error

    def _send(self, method: str, path: str, body: Any, key: str) -> None:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} | ({"Content-Type": "application/json"} if content else {})
        self._http.request(method, path, content, headers)

    def events(self, path: str) -> Iterator[Any]:
        """The data of a stream of events, until the service goes away."""
        if not self._connected():
            return
        try:
            self._send("GET", path, None, self._address.key())
            with self._http.getresponse() as response:
                while response.status == 200 and (line := response.readline()):
                    if line.startswith(b"data:"):
                        yield json.loads(line[5:])
        except (OSError, http.client.HTTPException):
            return
        finally:
            self.close()

    def close(self) -> None:
        """Let go."""
        self._http.close()
