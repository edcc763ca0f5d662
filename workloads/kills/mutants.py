"""Processes that break their word, each in a stated way: a campaign must find them out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tacit.policies.log import ReplayingPublisher
from tacit.privacy.continual import Stream, close_leaf, leaf_is_due
from tacit.service.host import Host
from tacit.service.published import publish
from tacit.service.store import Group, Swap
from tacit.typing import FloatArray
from workloads.kills.tapped import TappedStore

_LATE: Final = 0.02
"""Seconds by which a commit comes after its answers."""
_EARLY: Final = 0.05
"""Seconds by which others see a group before its commit."""


class LateStore(TappedStore):
    """A group, or a reward, is committed a moment after it was acknowledged."""

    _late: threading.Thread | None = None

    def append(self, name: str, seq: int, group: Group) -> int:
        self._later(partial(super().append, name, seq, group))
        return seq + len(group.entries)

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        self._later(partial(super().swap, name, table, swaps, beside))
        return {swap.old.key for swap in swaps}

    def _later(self, commit: Callable[[], object]) -> None:
        def work() -> None:
            time.sleep(_LATE)
            commit()

        self._finish()
        late = threading.Thread(target=work)
        late.start()
        self._late = late  # others wait for it, which they can once it has started

    def _finish(self) -> None:
        if self._late is not None:
            self._late.join()

    def find(self, *given: Any) -> Any:
        self._finish()
        return super().find(*given)

    def scan(self, *given: Any) -> Any:
        self._finish()
        return super().scan(*given)

    def compact(self, *given: Any) -> Any:
        self._finish()
        return super().compact(*given)


def _answer_first() -> type[TappedStore]:
    return LateStore


def _draw_again() -> type[TappedStore]:
    """A recovery draws what was committed anew."""
    usual = ReplayingPublisher.leaf

    def leaf(self: ReplayingPublisher, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            return usual(self, stream, noise, users)
        self._next("leaf")
        return close_leaf(stream, noise, users)

    ReplayingPublisher.leaf = leaf  # type: ignore[method-assign]
    return TappedStore


def _publish_first() -> type[TappedStore]:
    """Others see a group before it is committed."""
    begin = Host.__init__

    def begin_early(self: Host, *given: Any) -> None:
        begin(self, *given)
        commit = self.journal.commit

        def commit_late() -> None:
            if self.journal.released_in_group:
                number = self.published.releases + self.journal.released_in_group
                self.published = publish(self.journal.policy, "online", number, self._releases.known)
                time.sleep(_EARLY)
            commit()

        self.journal.commit = commit_late  # type: ignore[method-assign]

    Host.__init__ = begin_early  # type: ignore[assignment, method-assign]
    return TappedStore


_MUTANTS: Final[dict[str, Callable[[], type[TappedStore]]]] = {
    "answers-first": _answer_first,
    "draws-again": _draw_again,
    "publishes-first": _publish_first,
}
MUTANTS: Final = tuple(_MUTANTS)


def broken(mutant: str | None) -> type[TappedStore]:
    """Break this process, if a mutant is named; the kind of store that it opens."""
    return TappedStore if mutant is None else _MUTANTS[mutant]()
