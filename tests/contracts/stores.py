"""What every store must do, as checks of a factory: it opens a store, and opens the same one again after a close."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tacit.errors import JournalExists, JournalLost, OneLife, UnknownJournal
from tacit.service.store import Group, Lease, Row, Store

OpenStore = Callable[[], Store]
ODD_NAMES = ["", " ", "a'b\"c", "%_\\", "ä∂𝄞", "a/b", "x" * 500, "DROP TABLE journals"]


def row(key: bytes, position: int, value: bytes = b"v") -> Row:
    return Row(key, position, value)


def rows(table: str, *given: Row) -> dict[str, dict[bytes, Row]]:
    return {table: {one.key: one for one in given}}


def entries_of(store: Store, name: str) -> list[bytes]:
    """The log after the snapshot, as a new owner sees it."""
    return list(store.claim(name).entries)


def check_life_of_a_journal(open_store: OpenStore) -> None:
    store = open_store()
    assert store.journals() == []
    store.create("clicks", b"config", b"first", b"note")
    recovery = store.claim("clicks")
    assert (recovery.journal.config, recovery.journal.note, recovery.snapshot) == (b"config", b"note", b"first")
    assert list(recovery.entries) == []
    assert recovery.journal.epoch == recovery.lease.epoch
    assert store.append(recovery.lease, 0, Group([b"one", b"", b"three"], note=b"later")) == 3
    assert store.append(recovery.lease, 3, Group([b"four"])) == 4
    store.close()
    store = open_store()
    (journal,) = store.journals()
    assert (journal.name, journal.config, journal.note, journal.seq) == ("clicks", b"config", b"later", 4)
    assert entries_of(store, "clicks") == [b"one", b"", b"three", b"four"]
    store.close()


def check_names(open_store: OpenStore) -> None:
    store = open_store()
    for name in ODD_NAMES:
        store.create(name, name.encode(), b"first")
    assert sorted(journal.name for journal in store.journals()) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        recovery = store.claim(name)
        assert recovery.journal.config == name.encode()
        assert store.append(recovery.lease, 0, Group([name.encode()], rows(name, row(b"k", 1)))) == 1
    for name in ODD_NAMES:
        recovery = store.claim(name)
        assert list(recovery.entries) == [name.encode()]
        assert store.find(recovery.lease, name, [b"k"]) == {b"k": row(b"k", 1)}
    with pytest.raises(JournalExists):
        store.create(ODD_NAMES[2], b"", b"other")
    with pytest.raises(UnknownJournal):
        store.claim("nobody")
    store.close()


def check_fencing(open_store: OpenStore) -> None:
    """An old lease, a wrong number and an invented lease change nothing."""
    store = open_store()
    store.create("a", b"", b"first")
    old = store.claim("a").lease
    assert store.append(old, 0, Group([b"1"], rows("t", row(b"k", 1)))) == 1
    lease = store.claim("a").lease
    assert lease.epoch > old.epoch
    change = Group([b"x"], rows("t", row(b"k", 9), row(b"new", 9)), {"t": 5}, b"x")
    for wrong, seq in [
        (old, 1),
        (lease, 0),
        (lease, 2),
        (Lease("a", lease.epoch + 1), 1),
        (Lease("b", lease.epoch), 1),
    ]:
        with pytest.raises(JournalLost) as lost:
            store.append(wrong, seq, change)
        assert isinstance(lost.value, OneLife)
        with pytest.raises(JournalLost):
            store.compact(wrong, seq, b"x")
    for wrong in (old, Lease("a", lease.epoch + 1)):
        with pytest.raises(JournalLost):
            store.find(wrong, "t", [b"k"])
        with pytest.raises(JournalLost):
            store.scan(wrong, "t", 0, 10)
    assert store.scan(lease, "t", 0, 10) == [row(b"k", 1)]
    assert store.append(lease, 1, Group([b"2"])) == 2
    recovery = store.claim("a")
    assert (list(recovery.entries), recovery.snapshot, recovery.journal.note) == ([b"1", b"2"], b"first", b"")
    store.close()


def check_rows(open_store: OpenStore) -> None:
    store = open_store()
    store.create("a", b"", b"first")
    lease = store.claim("a").lease
    store.append(lease, 0, Group(rows=rows("t", *(row(bytes([k]), k) for k in range(20))) | rows("u", row(b"z", 3))))
    assert [one.position for one in store.scan(lease, "t", 4, 5)] == [5, 6, 7, 8, 9]
    assert store.scan(lease, "t", -1, 0) == []
    replaced = rows("t", row(b"\x03", 30, b"new"), row(b"\x13", 19, b"same place"), row(b"low", 2))
    store.append(lease, 0, Group(rows=replaced, forget={"t": 4, "u": 2}))
    assert store.find(lease, "t", [b"\x03", b"\x13", b"\x04", b"\x05", b"\x05", b"low", b"no"]) == {
        b"\x03": row(b"\x03", 30, b"new"),
        b"low": row(b"low", 2),  # forgotten first, and put then
        b"\x13": row(b"\x13", 19, b"same place"),
        b"\x05": row(b"\x05", 5),
    }
    assert [one.position for one in store.scan(lease, "t", -1, 100)] == [2, *range(5, 20), 30]
    assert store.scan(lease, "u", 0, 10) == [row(b"z", 3)]
    assert store.find(lease, "nothing", [b"z"]) == {}
    assert store.find(lease, "t", []) == {}
    many = {k.to_bytes(4, "big"): row(k.to_bytes(4, "big"), k) for k in range(1500)}
    store.append(lease, 0, Group(rows={"many": many}))
    assert store.find(lease, "many", iter(many)) == many
    store.close()


def check_compaction(open_store: OpenStore) -> None:
    store = open_store()
    store.create("a", b"", b"first")
    lease = store.claim("a").lease
    seq = store.append(lease, 0, Group([b"1", b"2"], rows("t", row(b"k", 1)), note=b"n"))
    for round_ in range(3):
        store.compact(lease, seq, b"snapshot %d" % round_)
        recovery = store.claim("a")
        lease = recovery.lease
        assert (recovery.snapshot, list(recovery.entries)) == (b"snapshot %d" % round_, [])
        assert (recovery.journal.seq, recovery.journal.snapshot_seq, recovery.journal.note) == (seq, seq, b"n")
        assert store.find(lease, "t", [b"k"]) == {b"k": row(b"k", 1)}
        seq = store.append(lease, seq, Group([b"after %d" % round_]))
    store.close()
    store = open_store()
    recovery = store.claim("a")
    assert (recovery.snapshot, list(recovery.entries)) == (b"snapshot 2", [b"after 2"])
    store.close()


def check_journals_are_apart(open_store: OpenStore) -> None:
    store = open_store()
    leases = []
    for name in ("a", "b"):
        store.create(name, b"", b"first")
        leases.append(store.claim(name).lease)
    for n in range(3):
        for lease in leases:
            mine = lease.journal.encode()
            store.append(lease, n, Group([mine], rows("t", row(b"k", n, mine)), note=mine))
    store.append(leases[0], 3, Group(forget={"t": 10}))
    store.compact(leases[0], 3, b"snapshot")
    assert store.find(leases[0], "t", [b"k"]) == {}
    assert store.find(leases[1], "t", [b"k"]) == {b"k": row(b"k", 2, b"b")}
    recovery = store.claim("b")
    assert (recovery.snapshot, list(recovery.entries), recovery.journal.note) == (b"first", [b"b"] * 3, b"b")
    assert store.append(leases[0], 3, Group([b"a"])) == 4  # a claim of b does not end the lease of a
    store.close()


def check_sizes(open_store: OpenStore) -> None:
    """Large values, many entries, positions of 63 bits, and entries that are read while other journals go on."""
    rng = random.Random(1)
    large = rng.randbytes(3_000_000)
    store = open_store()
    store.create("a", large[:50_000], large, large[:10_000])
    store.create("other", b"", b"first")
    lease, other = store.claim("a").lease, store.claim("other").lease
    entries = [rng.randbytes(rng.choice([0, 1, 120, 5000])) for _ in range(3500)]
    last = 2**63 - 1
    store.append(lease, 0, Group([large, *entries], rows("t", row(large[:1000], last, large))))
    store.close()
    store = open_store()
    recovery = store.claim("a")
    assert (recovery.journal.config, recovery.journal.note) == (large[:50_000], large[:10_000])
    assert recovery.snapshot == large
    assert next(recovery.entries) == large
    store.append(other, 0, Group([b"meanwhile"]))
    assert list(recovery.entries) == entries
    assert store.scan(recovery.lease, "t", 0, 1) == [row(large[:1000], last, large)]
    store.compact(recovery.lease, 3501, large)
    assert store.claim("a").snapshot == large
    store.close()


def check_settings(open_store: OpenStore) -> None:
    store = open_store()
    store.change_settings({"key/1": b"a", "key/2": b"b", "secret": b"\0\xff", "k%y": b"c"})
    store.change_settings({"key/2": b"B", "key/3": b"d"}, delete=["key/1", "missing"])
    store.close()
    store = open_store()
    assert store.settings("key/") == {"key/2": b"B", "key/3": b"d"}
    assert store.settings("k%") == {"k%y": b"c"}
    assert set(store.settings("")) == {"key/2", "key/3", "secret", "k%y"}
    store.close()


def check_threads(open_store: OpenStore) -> None:
    """Several threads at a time, each with a journal of its own."""
    store = open_store()

    def work(name: str) -> list[bytes]:
        store.create(name, b"", b"first")
        lease = store.claim(name).lease
        for seq in range(20):
            put = rows("t", row(b"%d" % seq, seq))
            assert store.append(lease, seq, Group([b"%d" % seq], put)) == seq + 1
            assert store.find(lease, "t", [b"%d" % seq]) == put["t"]
        store.compact(lease, 20, b"snapshot")
        store.append(lease, 20, Group([name.encode()]))
        return entries_of(store, name)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, "abcd")) == [[b"a"], [b"b"], [b"c"], [b"d"]]
    store.close()


class Breaking(dict[bytes, Row]):
    """Rows of which the second cannot be had."""

    def values(self) -> Any:
        yield row(b"k", 1)
        raise ZeroDivisionError


def check_groups_are_whole(open_store: OpenStore) -> None:
    """What cannot be stored in the middle of a group leaves nothing of it behind, and the store can go on."""
    store = open_store()
    store.create("a", b"", b"first")
    lease = store.claim("a").lease
    with pytest.raises(ZeroDivisionError):
        store.append(lease, 0, Group([b"1"], {"t": Breaking({b"k": row(b"k", 1)})}, note=b"x"))
    assert store.scan(lease, "t", 0, 10) == []
    assert store.append(lease, 0, Group([b"2"])) == 1
    recovery = store.claim("a")
    assert (list(recovery.entries), recovery.journal.note) == ([b"2"], b"")
    store.close()


def check_making_is_whole(open_store: OpenStore) -> None:
    """A journal whose first snapshot cannot be stored was never made, and may be made by the next call."""
    store = open_store()
    for part in ({"snapshot": 3}, {"snapshot": b"first", "note": 3}):
        broken: Any = part
        with pytest.raises(TypeError):
            store.create("a", b"broken", **broken)
        assert store.journals() == []
        with pytest.raises(UnknownJournal):
            store.claim("a")
    store.create("a", b"config", b"first", b"note")
    with pytest.raises(JournalExists):
        store.create("a", b"other", b"other", b"other")
    recovery = store.claim("a")
    assert (recovery.journal.config, recovery.journal.note, recovery.snapshot) == (b"config", b"note", b"first")
    assert (recovery.journal.seq, recovery.journal.snapshot_seq, list(recovery.entries)) == (0, 0, [])
    store.close()


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


@dataclass
class Model:
    """A journal as plain Python has it."""

    note: bytes = b""
    snapshot: bytes = b"first"
    snapshot_seq: int = 0
    entries: list[bytes] = field(default_factory=list)
    tables: dict[str, dict[bytes, Row]] = field(default_factory=lambda: {"t": {}, "u": {}})
    lease: Lease | None = None

    @property
    def seq(self) -> int:
        return self.snapshot_seq + len(self.entries)

    def take(self, group: Group) -> None:
        self.entries += group.entries
        self.note = self.note if group.note is None else group.note
        for table, position in group.forget.items():
            self.tables[table] = {k: one for k, one in self.tables[table].items() if one.position > position}
        for table, put in group.rows.items():
            self.tables[table] |= put


NAMES, TABLES = st.sampled_from(["a", "b"]), st.sampled_from(["t", "u"])
VALUES = st.one_of(st.binary(max_size=20), st.integers(0, 9000).map(lambda size: b"x" * size))
ROWS = st.builds(Row, st.binary(max_size=1), st.integers(-1, 4), VALUES)
GROUPS = st.builds(
    Group,
    st.lists(VALUES, max_size=4),
    st.dictionaries(TABLES, st.lists(ROWS, max_size=4).map(lambda found: {one.key: one for one in found})),
    st.dictionaries(TABLES, st.integers(-1, 4)),
    st.none() | VALUES,
)


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with plain Python; a subclass says how it is opened."""

    store: Store
    models: dict[str, Model]

    def open_store(self) -> Store:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.store, self.models = self.open_store(), {}
        self.create("a")
        self.claim("a")

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name in self.models:
            with pytest.raises(JournalExists):
                self.store.create(name, b"other", b"other")
        else:
            self.store.create(name, name.encode(), b"first")
            self.models[name] = Model()

    @rule(name=NAMES)
    def claim(self, name: str) -> None:
        if name not in self.models:
            with pytest.raises(UnknownJournal):
                self.store.claim(name)
            return
        recovery, model = self.store.claim(name), self.models[name]
        assert model.lease is None or recovery.lease.epoch > model.lease.epoch
        assert recovery.journal.config == name.encode()
        assert (recovery.journal.seq, recovery.journal.snapshot_seq) == (model.seq, model.snapshot_seq)
        assert (recovery.snapshot, list(recovery.entries)) == (model.snapshot, model.entries)
        model.lease = recovery.lease

    @rule(name=NAMES, group=GROUPS, off=st.sampled_from([0, 0, 0, -1, 1]), old=st.sampled_from([0, 0, 0, 1]))
    def append(self, name: str, group: Group, off: int, old: int) -> None:
        model = self.models.get(name)
        if model is None or model.lease is None:
            return
        lease = Lease(name, model.lease.epoch - old)
        if off or old:
            with pytest.raises(JournalLost):
                self.store.append(lease, model.seq + off, group)
            return
        expected = model.seq + len(group.entries)
        assert self.store.append(lease, model.seq, group) == expected
        model.take(group)

    @rule(name=NAMES, snapshot=VALUES)
    def compact(self, name: str, snapshot: bytes) -> None:
        model = self.models.get(name)
        if model is not None and model.lease is not None:
            self.store.compact(model.lease, model.seq, snapshot)
            model.snapshot, model.snapshot_seq, model.entries = snapshot, model.seq, []

    @precondition(lambda self: self.models)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open_store()

    @rule(name=NAMES, table=TABLES, after=st.integers(-2, 5), limit=st.integers(0, 5))
    def look(self, name: str, table: str, after: int, limit: int) -> None:
        model = self.models.get(name)
        if model is not None and model.lease is not None:
            held = model.tables[table]
            positions = sorted(one.position for one in held.values() if one.position > after)[:limit]
            found = self.store.scan(model.lease, table, after, limit)
            assert [one.position for one in found] == positions
            assert all(held[one.key] == one for one in found)

    @invariant()
    def rows_agree(self) -> None:
        for model in self.models.values():
            if model.lease is None:
                continue
            for table, held in model.tables.items():
                assert self.store.find(model.lease, table, [*held, b"missing"]) == held
                assert len(self.store.scan(model.lease, table, -2, 1000)) == len(held)

    @invariant()
    def heads_agree(self) -> None:
        found = {one.name: (one.note, one.seq, one.snapshot_seq) for one in self.store.journals()}
        assert found == {name: (model.note, model.seq, model.snapshot_seq) for name, model in self.models.items()}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
