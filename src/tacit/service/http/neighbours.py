"""What the routes of one process need of others that serve the same deployment; by default there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from tacit.service.http.receiving import ASGIScope

Part = Mapping[str, Any]
"""Something of each policy that a process owns, by name."""


class Neighbours(Protocol):
    """Other processes, each of which owns policies of its own."""

    def names(self) -> Set[str]:
        """All policies of the deployment that were there a moment ago."""

    def ready(self) -> bool:
        """Whether every policy has an owner."""

    def is_part(self, scope: ASGIScope) -> bool:
        """Whether another process asks for what this one has, to put it together with the rest."""

    async def whole(self, scope: ASGIScope, own: Callable[[], Part], *, age: float = 0.0) -> Part:
        """What all processes answer to a request, together; ``own`` is the part of this one.

        It may be as old as ``age`` seconds, and is refused with 503 where a policy is missing that the key reaches.
        """

    def making(self, name: str) -> AbstractContextManager[None]:
        """In a thread: make a policy within, or change one, while nobody else does."""

    async def fresh(self) -> None:
        """Know of all that others have changed before."""

    def tell(self) -> None:
        """Let the others know that something has changed."""


class Nobody:
    """A process that has the deployment for itself."""

    def names(self) -> Set[str]:
        return frozenset()

    def ready(self) -> bool:
        return True

    def is_part(self, scope: ASGIScope) -> bool:
        return False

    async def whole(self, scope: ASGIScope, own: Callable[[], Part], *, age: float = 0.0) -> Part:
        return own()

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        yield

    async def fresh(self) -> None:
        return

    def tell(self) -> None:
        return
