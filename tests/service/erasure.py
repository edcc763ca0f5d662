"""What every store must do about erasure: after a compaction nothing that can be read has a byte of what is gone."""

from __future__ import annotations

import random
from collections.abc import Callable

from tacit.service.store import Group, Row, Store
from tests.contracts.stores import append, compact


def traces(gone: list[bytes], content: bytes, size: int = 12) -> int:
    """How many of these left their first or last bytes somewhere."""
    pieces = {content[start : start + size] for start in range(len(content) - size)}
    return sum(one[:size] in pieces or one[-size:] in pieces for one in gone)


class _Work:
    """Groups of all sizes on one journal, beside another that stays as it is; remembers what is gone."""

    def __init__(self, store: Store) -> None:
        self.store, self.rng = store, random.Random(1)
        self.gone: list[bytes] = []
        self.first = self.rng.randbytes(500)  # short enough to be in one piece in any store
        self.rows: dict[bytes, Row] = {}
        self.seq = 0
        for name in "ab":
            store.create(name, b"", self.first if name == "a" else b"stays", self.rng.randbytes(16))

    def do(self, number: int) -> None:
        rng = self.rng
        entries = [rng.randbytes(rng.choice([16, 120, 120, 1500, 9000])) for _ in range(10)]
        keys = [rng.randbytes(16) for _ in range(20)] + rng.sample(sorted(self.rows), min(len(self.rows), 10))
        put = {key: Row(key, number, rng.randbytes(rng.choice([40, 60, 200]))) for key in keys}
        self.gone += [*entries, *(self.rows[key].value for key in put if key in self.rows)]
        append(self.store, "a", self.seq, Group(entries, {"t": put}, {"t": number - 100}, rng.randbytes(16)))
        stays = {"t": {b"stays": Row(b"stays", 1, bytes(60))}}
        append(self.store, "b", self.seq, Group([b"stays" + bytes(100)] * 10, stays))
        forgotten = {key: row for key, row in self.rows.items() if row.position <= number - 100 and key not in put}
        self.gone += [part for row in forgotten.values() for part in (row.key, row.value)]
        self.rows = {key: row for key, row in (self.rows | put).items() if key not in forgotten}
        self.seq += len(entries)


def check_erasure(store: Store, content: Callable[[], bytes], groups: int = 300) -> None:
    """Entries, rows that were replaced or forgotten, and snapshots, of all sizes; two journals beside each other."""
    work = _Work(store)
    for number in range(groups):
        work.do(number)
    found = content()
    assert any(one in found for one in work.gone[-20:])
    assert work.first in found
    snapshots = [work.rng.randbytes(size) for size in (30_000, 100, 5000)]
    for snapshot in snapshots:
        compact(store, "a", work.seq, snapshot)
    found = content()
    assert traces([*work.gone, work.first, *snapshots[:2]], found) == 0
    assert all(row.value in found for row in work.rows.values())
    assert store.find("a", "t", work.rows) == work.rows
