"""Those who look: one reads every route of every policy, one does what the page does in a browser."""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from tacit.service.http.page import FOLDER
from workloads.kills.connection import Address, Answer, Connection
from workloads.kills.shown import Floor, Shown

_LOOKS_PER_HISTORY: Final = 4
_PAUSE: Final = 0.003
"""Seconds between looks, which would otherwise keep the service from deciding."""
_STREAM_PATIENCE: Final = 2.0
"""Seconds without a change after which a stream is opened anew."""
_LINKS: Final = re.compile(r'(?:src|href)="static/([^"]+)"')
_IMPORTS: Final = re.compile(r'from "\./([^"]+)"')


class Poller(threading.Thread, ABC):
    """Looks until it is stopped, across all kills."""

    def __init__(self, address: Address, shown: Mapping[str, Shown], made: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._shown, self._made = address, shown, made
        self._connection = Connection(address)
        self._over = threading.Event()
        self.polls = 0

    def stop(self) -> None:
        """Finish what is being read, and end."""
        self._over.set()

    def run(self) -> None:
        """Look again and again, from when there are policies on."""
        self._made.wait()
        try:
            while not self._over.is_set():
                self._look()
        except Exception as error:
            self._expect(False, f"a poller gave up: {error!r}")
        finally:
            self._connection.close()

    @abstractmethod
    def _look(self) -> None:
        """Once."""

    def _expect(self, right: bool, words: str) -> None:
        next(iter(self._shown.values())).witness.expect(right, words)

    def _get(self, path: str, *expected: int) -> Answer:
        answer = self._connection.insist("GET", path)
        self.polls += 1
        self._expect(answer.status in (expected or (200,)), f"GET {path} was answered with {answer.status}")
        return answer

    def _floors(self) -> dict[str, Floor]:
        return {name: shown.floor() for name, shown in self._shown.items()}

    # Parts of a policy

    def _summary(self, name: str) -> int:
        floor = self._shown[name].floor()
        return self._shown[name].summary(self._get(f"/v1/policies/{name}").document, floor)

    def _privacy(self, name: str) -> Any:
        floor = self._shown[name].floor()
        report = self._get(f"/v1/policies/{name}/privacy").document
        self._shown[name].privacy(report, floor)
        return report

    def _history(self, name: str) -> None:
        floor = self._shown[name].floor()
        self._shown[name].history(self._get(f"/v1/policies/{name}/history").document, floor)

    def _explanation(self, name: str) -> Any:
        floor = self._shown[name].floor()
        answer = self._get(f"/v1/policies/{name}/explanation", 200, 404)
        document = answer.document if answer.status == 200 else None
        self._shown[name].explanation(document, floor)
        return document


class Reader(Poller):
    """Reads all routes of each policy in turn; the history, which is long, now and then."""

    _looks = 0

    def _look(self) -> None:
        self._looks += 1
        for name, shown in self._shown.items():
            before, report, explanation = self._summary(name), self._privacy(name), self._explanation(name)
            if self._summary(name) == before:
                shown.at_release(before, report, explanation)
            if self._looks % _LOOKS_PER_HISTORY == 0:
                self._history(name)
            time.sleep(_PAUSE)


class Page(Poller):
    """Opens the page, follows the stream of changes, and fetches what is shown after each of them."""

    _stays = False

    def _look(self) -> None:
        """Every other time the page stays until the service is gone; else somebody turns to another tab."""
        self._stays = not self._stays
        self._load()
        self._list()
        stream, floors = Connection(self._address, _STREAM_PATIENCE), self._floors()
        for event in stream.events("/v1/live"):
            self.polls += 1
            for summary in event["policies"]:
                self._shown[summary["name"]].summary(summary, floors[summary["name"]])
            self._fetch()
            if not self._stays or self._over.is_set():
                break
        stream.close()

    def _load(self) -> None:
        """The page, and every file that it asks for."""
        wanted, loaded = _LINKS.findall(self._get("/").body.decode()), set[str]()
        while wanted:
            name = wanted.pop()
            if name not in loaded:
                loaded.add(name)
                body = self._get(f"/static/{name}").body
                self._expect(body == (FOLDER / name).read_bytes(), f"{name} was served with another content")
                wanted += _IMPORTS.findall(body.decode()) if name.endswith(".js") else []

    def _list(self) -> None:
        floors = self._floors()
        for document in self._get("/v1/policies").document["policies"]:
            self._shown[document["name"]].summary(document, floors[document["name"]])

    def _fetch(self) -> None:
        """As the page does for the policy that is shown, here for all of them."""
        floors, total = self._floors(), self._get("/v1/privacy").document
        for name, shown in self._shown.items():
            shown.privacy(total["policies"][name], floors[name])
            self._summary(name)
            self._privacy(name)
            self._history(name)
            self._explanation(name)
