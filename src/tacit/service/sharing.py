"""Which process owns which policy: functions of who is there and what they own, the same in every process.

Policies are shared out by their number.  One that nobody owns goes to the process with the fewest, and when a process
has two more than another, it hands one over.  So a policy moves when processes come or go, and not otherwise.  Among
equals a hash decides, which all processes compute alike.

Nothing here needs to be right for answers to be right: whoever acts on an old view finds a lock taken.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """A process that serves the database."""

    id: str
    address: str
    """Where the others reach it."""
    settled: bool
    """Whether it has been there for a while; policies are moved to such processes alone."""


@dataclass(frozen=True)
class View:
    """Who is there, and who owns what, at one moment."""

    members: tuple[Member, ...] = ()
    """Processes that are alive and say so."""
    owners: Mapping[str, str | None] = field(default_factory=dict)
    """Of every policy of the database, the id of the process that owns it; None where none of the members does."""

    @property
    def unowned(self) -> list[str]:
        """Policies that are to be taken over."""
        return sorted(name for name, owner in self.owners.items() if owner is None)

    @property
    def whole(self) -> bool:
        """Whether every policy has an owner; nobody is known before the first look."""
        return bool(self.members) and not self.unowned

    def owner(self, name: str) -> Member | None:
        """The process that owns a policy."""
        owner = self.owners.get(name)
        return next((member for member in self.members if member.id == owner), None)


def taken_over(view: View, own: str) -> list[str]:
    """The policies without an owner that a member should take."""
    loads, taken = _loads(view), []
    for name in view.unowned:
        chosen = _least(view.members, loads, name)
        if chosen is not None:
            loads[chosen.id] += 1
            taken += [name] if chosen.id == own else []
    return taken


def maker(view: View, name: str) -> Member | None:
    """Who should make a policy that there is not yet."""
    return _least(view.members, _loads(view), name)


def handed_over(view: View, own: str) -> str | None:
    """The policy that a member should give up for another one; one at a time in the whole deployment."""
    loads = _loads(view)
    settled = tuple(member for member in view.members if member.settled)
    least = _least(settled, loads, "")
    if least is None or not view.whole:
        return None
    most = max(view.members, key=lambda member: (loads[member.id], member.id))
    if most.id != own or loads[own] - loads[least.id] < 2:
        return None
    return min((name for name, owner in view.owners.items() if owner == own), key=lambda name: _rank(name, least.id))


def _loads(view: View) -> Counter[str]:
    return Counter(owner for owner in view.owners.values() if owner is not None)


def _least(members: tuple[Member, ...], loads: Counter[str], name: str) -> Member | None:
    return min(members, key=lambda member: (loads[member.id], _rank(name, member.id)), default=None)


def _rank(name: str, member: str) -> bytes:
    return hashlib.sha256(f"{name}\0{member}".encode()).digest()
