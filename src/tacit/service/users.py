"""Users who return: of each the first k decisions count, rewarded or not, and later ones teach nothing.

Counters live as long as the policy, under keyed hashes of the users' ids.  They are a function of who asked and how
often, which is public, and never of arms or rewards.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from tacit.errors import StoreDamaged
from tacit.service.store import Group, Row, Store

USERS: Final = "users"
"""The table of a journal that has a row for each user."""
_COUNT: Final = struct.Struct("<I")


class UserCounts:
    """The counters of one policy; ``most`` decisions of a user count."""

    def __init__(self, store: Store, journal: str, most: int, known: int) -> None:
        self.most = most
        self.known = known
        """Users who ever came."""
        self._store, self._journal = store, journal
        self._rows: dict[bytes, Row] = {}

    def look_up(self, users: Iterable[bytes]) -> None:
        """Read the counters of the users of a group, at once."""
        self._rows = self._store.find(self._journal, USERS, users)

    def counts(self, user: bytes, group: Group) -> bool:
        """Whether a decision of this user counts; counts it if so, with the group."""
        row = self._rows.get(user) or Row(user, self.known + 1, _COUNT.pack(0))
        try:
            (so_far,) = _COUNT.unpack(row.value)
        except struct.error as error:
            raise StoreDamaged(f"a row of the table of users cannot be read: {error}") from error
        if so_far >= self.most:
            return False
        self.known = max(self.known, row.position)
        self._rows[user] = row._replace(value=_COUNT.pack(so_far + 1))
        group.rows.setdefault(USERS, {})[user] = self._rows[user]
        return True
