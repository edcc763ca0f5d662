"""What others see of a policy, across all lives of its process: no release has two values, and nothing goes back."""

from __future__ import annotations

import bisect
import json
import threading
from typing import Any, NamedTuple

from workloads.kills.findings import RELEASE, Witness


class Floor(NamedTuple):
    """What was known before a request was sent; its answer must not fall behind."""

    decisions: int
    """Acknowledged or shown."""
    releases: int
    newest: int
    """Decisions before the newest point of the history."""
    spent: float
    explained: bool
    """Whether there is an estimate to explain anything by."""


class Shown:
    """Compares all that pollers see of one policy."""

    def __init__(self, witness: Witness) -> None:
        self.witness, self._lock = witness, threading.Lock()
        self._decisions = self._releases = 0
        self._spent = 0.0
        self._explained = False
        self._points: list[int] = []
        """Decisions before each point of the history that was seen, in order."""

    def floor(self) -> Floor:
        """What is known by now."""
        with self._lock:
            decisions = max(self._decisions, len(self.witness.arms))
            newest = self._points[-1] if self._points else 0
            return Floor(decisions, self._releases, newest, self._spent, self._explained)

    def summary(self, document: dict[str, Any], floor: Floor) -> int:
        """A policy, from a list, alone, or in the stream; the number of its releases."""
        decisions, releases = int(document["decisions"]), int(document["releases"])
        expect = self.witness.expect
        expect(decisions >= floor.decisions, f"decisions went back from {floor.decisions} to {decisions}")
        expect(releases >= floor.releases, f"releases went back from {floor.releases} to {releases}")
        if "estimate" in document:
            self.witness.shows(RELEASE, releases, tuple(document["estimate"]))
        if "newest_release" in document:
            newest = (document["newest_release"], document["best_reward"], _text(document["privacy"]))
            self.witness.shows("summary of release", releases, newest)
        with self._lock:
            self._decisions, self._releases = max(self._decisions, decisions), max(self._releases, releases)
        return releases

    def privacy(self, report: dict[str, Any], floor: Floor) -> None:
        """What was spent never becomes less."""
        spent = float(report["spent_mu"])
        self.witness.expect(spent >= floor.spent, f"the spent budget went back from {floor.spent} to {spent}")
        with self._lock:
            self._spent = max(self._spent, spent)

    def explanation(self, document: dict[str, Any] | None, floor: Floor) -> None:
        """Its weights are a released estimate; None where there is none yet."""
        self.witness.expect(document is not None or not floor.explained, "an explanation was taken back")
        if document is not None:
            self.witness.explained.add(_weights(document))
            with self._lock:
                self._explained = True

    def at_release(self, releases: int, report: dict[str, Any], explanation: dict[str, Any] | None) -> None:
        """These were read while this was the number of releases, before and after."""
        self.witness.shows("budget at release", releases, _text(report))
        self.witness.shows("explanation of release", releases, _text(explanation))
        if explanation is not None:
            self.witness.shows(RELEASE, releases, _weights(explanation))

    def history(self, document: dict[str, Any], floor: Floor) -> None:
        """Points are never changed, and none vanishes from between others."""
        points = {int(point["decisions"]): (point["time"], point["best_reward"]) for point in document["releases"]}
        for decisions, value in points.items():
            self.witness.shows("point of the history", decisions, value)
        newest = max(points, default=0)
        self.witness.expect(newest >= floor.newest, f"the history went back from {floor.newest} to {newest}")
        if points:
            self._merge(sorted(points))

    def _merge(self, points: list[int]) -> None:
        with self._lock:
            start = bisect.bisect_left(self._points, points[0])
            end = bisect.bisect_right(self._points, points[-1])
            vanished = set(self._points[start:end]) - set(points)
            self._points[start:end] = points
        self.witness.expect(not vanished, f"the history lost what was there after {sorted(vanished)} decisions")


def _weights(explanation: dict[str, Any]) -> tuple[float, ...]:
    """In the order of coordinates; the features of these policies are numbered, and shown by their weight."""
    weights = {feature["name"]: feature["weight"] for feature in explanation["features"]}
    return tuple(weights[name] for name in sorted(weights))


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
