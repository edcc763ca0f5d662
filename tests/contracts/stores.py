"""What every store must do, as checks of a factory: it opens a store, and opens the same one again after a close."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tacit.errors import JournalExists, JournalLost, OneLife, UnknownJournal
from tacit.service.store import NOTHING, Group, Row, Store, Swap

OpenStore = Callable[[], Store]
ODD_NAMES = ["", " ", "a'b\"c", "%_\\", "ä∂𝄞", "a/b", "x" * 500, "DROP TABLE journals"]


def row(key: bytes, position: int, value: bytes = b"v") -> Row:
    return Row(key, position, value)


def rows(table: str, *given: Row) -> dict[str, dict[bytes, Row]]:
    return {table: {one.key: one for one in given}}


def append(store: Store, name: str, seq: int, group: Group) -> int:
    """Commit a group in a turn of its own."""
    with store.turn(name, seq):
        return store.append(name, seq, group)


def compact(store: Store, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> None:
    """Write a snapshot in a turn of its own."""
    with store.turn(name, seq):
        store.compact(name, seq, snapshot, group)


def entries_of(store: Store, name: str) -> list[bytes]:
    """The log after the snapshot, as a process reads it that knows nothing."""
    return list(store.read(name).entries)


def check_life_of_a_journal(open_store: OpenStore) -> None:
    store = open_store()
    assert store.journals() == []
    store.create("clicks", b"config", b"first", b"note", Group(rows=rows("t", row(b"k", 7))))
    tail = store.read("clicks")
    assert (tail.journal.config, tail.journal.note, tail.snapshot) == (b"config", b"note", b"first")
    assert list(tail.entries) == []
    assert store.scan("clicks", "t", 0, 10) == [row(b"k", 7)]
    assert append(store, "clicks", 0, Group([b"one", b"", b"three"], note=b"later")) == 3
    assert append(store, "clicks", 3, Group([b"four"])) == 4
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
        assert store.read(name).journal.config == name.encode()
        assert append(store, name, 0, Group([name.encode()], rows(name, row(b"k", 1)))) == 1
    for name in ODD_NAMES:
        assert entries_of(store, name) == [name.encode()]
        assert store.find(name, name, [b"k"]) == {b"k": row(b"k", 1)}
    with pytest.raises(JournalExists):
        store.create(ODD_NAMES[2], b"", b"other")
    for use in (store.read, lambda name: append(store, name, 0, Group([b"x"])), lambda name: store.find(name, "t", [])):
        with pytest.raises(UnknownJournal):
            use("nobody")
    store.close()


def check_wrong_numbers(open_store: OpenStore) -> None:
    """A process that does not know all of the log changes nothing."""
    store = open_store()
    store.create("a", b"", b"first")
    assert append(store, "a", 0, Group([b"1"], rows("t", row(b"k", 1)))) == 1
    change = Group([b"x"], rows("t", row(b"k", 9), row(b"new", 9)), {"t": 5}, b"x")
    for seq in (0, 2):
        with pytest.raises(JournalLost) as lost, store.turn("a", 1):
            store.append("a", seq, change)
        assert isinstance(lost.value, OneLife)
        with pytest.raises(JournalLost), store.turn("a", 1):
            store.compact("a", seq, b"x")
    assert store.scan("a", "t", 0, 10) == [row(b"k", 1)]
    assert append(store, "a", 1, Group([b"2"])) == 2
    tail = store.read("a")
    assert (list(tail.entries), tail.snapshot, tail.journal.note) == ([b"1", b"2"], b"first", b"")
    store.close()


def check_reading_on(open_store: OpenStore) -> None:
    """A process that knows a part of the log reads the rest; one whose next entry was erased begins anew."""
    store = open_store()
    store.create("a", b"", b"first")
    append(store, "a", 0, Group([b"1", b"2", b"3"]))
    for after, rest in ((0, [b"1", b"2", b"3"]), (2, [b"3"]), (3, [])):
        tail = store.read("a", after)
        assert (tail.snapshot, list(tail.entries)) == (None, rest)
    compact(store, "a", 3, b"snapshot")
    append(store, "a", 3, Group([b"4"]))
    for known in (NOTHING, 0, 2):
        tail = store.read("a", known)
        assert (tail.snapshot, list(tail.entries)) == (b"snapshot", [b"4"])
    tail = store.read("a", 3)
    assert (tail.snapshot, list(tail.entries)) == (None, [b"4"])
    store.close()


def check_swaps(open_store: OpenStore) -> None:
    """Each row is replaced if it is what it was thought to be, with what belongs beside it; no turn is needed."""
    store = open_store()
    store.create("a", b"", b"first", b"note", Group(rows=rows("t", row(b"k", 1), row(b"l", 2), row(b"m", 3))))
    new = {key: row(key, place, b"new") for place, key in ((1, b"k"), (2, b"l"), (3, b"m"), (4, b"n"))}
    swaps = [
        Swap(row(b"k", 1), new[b"k"], row(b"k", 1, b"beside")),
        Swap(row(b"l", 2, b"other"), new[b"l"], row(b"l", 2, b"beside")),
        Swap(row(b"m", 3), new[b"m"]),
        Swap(row(b"n", 4), new[b"n"], row(b"n", 4, b"beside")),
    ]
    assert store.swap("a", "t", swaps, "u") == {b"k", b"m"}
    assert store.scan("a", "t", 0, 10) == [new[b"k"], row(b"l", 2), new[b"m"]]
    assert store.scan("a", "u", 0, 10) == [row(b"k", 1, b"beside")]
    assert store.swap("a", "t", swaps, "u") == set()
    assert store.swap("a", "t", []) == set()
    (journal,) = store.journals()
    assert (journal.seq, journal.note) == (0, b"note")
    store.close()


def check_rows(open_store: OpenStore) -> None:
    store = open_store()
    store.create("a", b"", b"first")
    append(store, "a", 0, Group(rows=rows("t", *(row(bytes([k]), k) for k in range(20))) | rows("u", row(b"z", 3))))
    assert [one.position for one in store.scan("a", "t", 4, 5)] == [5, 6, 7, 8, 9]
    assert store.scan("a", "t", -1, 0) == []
    replaced = rows("t", row(b"\x03", 30, b"new"), row(b"\x13", 19, b"same place"), row(b"low", 2))
    append(store, "a", 0, Group(rows=replaced, forget={"t": 4, "u": 2}))
    assert store.find("a", "t", [b"\x03", b"\x13", b"\x04", b"\x05", b"\x05", b"low", b"no"]) == {
        b"\x03": row(b"\x03", 30, b"new"),
        b"low": row(b"low", 2),  # forgotten first, and put then
        b"\x13": row(b"\x13", 19, b"same place"),
        b"\x05": row(b"\x05", 5),
    }
    assert [one.position for one in store.scan("a", "t", -1, 100)] == [2, *range(5, 20), 30]
    assert store.scan("a", "u", 0, 10) == [row(b"z", 3)]
    assert store.find("a", "nothing", [b"z"]) == {}
    assert store.find("a", "t", []) == {}
    append(store, "a", 0, Group(rows=rows("t", row(b"low", 2, b"again")), drop={"t": {b"\x05", b"no"}, "u": {b"z"}}))
    assert [one.position for one in store.scan("a", "t", -1, 100)] == [2, *range(6, 20), 30]
    assert store.scan("a", "u", 0, 10) == []
    many = {k.to_bytes(4, "big"): row(k.to_bytes(4, "big"), k) for k in range(1500)}
    append(store, "a", 0, Group(rows={"many": many}))
    assert store.find("a", "many", iter(many)) == many
    store.close()


def check_compaction(open_store: OpenStore) -> None:
    store = open_store()
    store.create("a", b"", b"first")
    seq = append(store, "a", 0, Group([b"1", b"2"], rows("t", row(b"k", 1)), note=b"n"))
    for round_ in range(3):
        compact(store, "a", seq, b"snapshot %d" % round_)
        recovery = store.read("a")
        assert (recovery.snapshot, list(recovery.entries)) == (b"snapshot %d" % round_, [])
        assert (recovery.journal.seq, recovery.journal.snapshot_seq, recovery.journal.note) == (seq, seq, b"n")
        assert store.find("a", "t", [b"k"]) == {b"k": row(b"k", 1)}
        seq = append(store, "a", seq, Group([b"after %d" % round_]))
    store.close()
    store = open_store()
    recovery = store.read("a")
    assert (recovery.snapshot, list(recovery.entries)) == (b"snapshot 2", [b"after 2"])
    store.close()


def check_journals_are_apart(open_store: OpenStore) -> None:
    store = open_store()
    for name in ("a", "b"):
        store.create(name, b"", b"first")
    for n in range(3):
        for name in ("a", "b"):
            mine = name.encode()
            append(store, name, n, Group([mine], rows("t", row(b"k", n, mine)), note=mine))
    append(store, "a", 3, Group(forget={"t": 10}))
    compact(store, "a", 3, b"snapshot")
    assert store.find("a", "t", [b"k"]) == {}
    assert store.find("b", "t", [b"k"]) == {b"k": row(b"k", 2, b"b")}
    recovery = store.read("b")
    assert (recovery.snapshot, list(recovery.entries), recovery.journal.note) == (b"first", [b"b"] * 3, b"b")
    assert append(store, "a", 3, Group([b"a"])) == 4
    store.close()


def check_sizes(open_store: OpenStore) -> None:
    """Large values, many entries, positions of 63 bits, and entries that are read while other journals go on."""
    rng = random.Random(1)
    large = rng.randbytes(3_000_000)
    store = open_store()
    store.create("a", large[:50_000], large, large[:10_000])
    store.create("other", b"", b"first")
    entries = [rng.randbytes(rng.choice([0, 1, 120, 5000])) for _ in range(3500)]
    last = 2**63 - 1
    append(store, "a", 0, Group([large, *entries], rows("t", row(large[:1000], last, large))))
    store.close()
    store = open_store()
    recovery = store.read("a")
    assert (recovery.journal.config, recovery.journal.note) == (large[:50_000], large[:10_000])
    assert recovery.snapshot == large
    assert next(recovery.entries) == large
    append(store, "other", 0, Group([b"meanwhile"]))
    assert list(recovery.entries) == entries
    assert store.scan("a", "t", 0, 1) == [row(large[:1000], last, large)]
    compact(store, "a", 3501, large)
    assert store.read("a").snapshot == large
    store.close()


def check_settings(open_store: OpenStore) -> None:
    store = open_store()
    store.change_settings({"key/1": b"a", "key/2": b"b", "secret": b"\0\xff", "k%y": b"c"})
    store.change_settings({"key/2": b"B", "key/3": b"d"}, delete=["key/1", "missing"])
    store.change_settings({"key/2": b"again", "key/3": b"again"}, replace=False)
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
        for seq in range(20):
            put = rows("t", row(b"%d" % seq, seq))
            assert append(store, name, seq, Group([b"%d" % seq], put)) == seq + 1
            assert store.find(name, "t", [b"%d" % seq]) == put["t"]
        compact(store, name, 20, b"snapshot")
        append(store, name, 20, Group([name.encode()]))
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
    with pytest.raises(ZeroDivisionError):
        append(store, "a", 0, Group([b"1"], {"t": Breaking({b"k": row(b"k", 1)})}, note=b"x"))
    assert store.scan("a", "t", 0, 10) == []
    assert append(store, "a", 0, Group([b"2"])) == 1
    recovery = store.read("a")
    assert (list(recovery.entries), recovery.journal.note) == ([b"2"], b"")
    store.close()


def check_making_is_whole(open_store: OpenStore) -> None:
    """A journal whose first snapshot cannot be stored was never made, and may be made by the next call."""
    store = open_store()
    whole = {"snapshot": b"first"}
    no_row: Any = 3
    parts: list[Any] = [
        {"snapshot": 3},
        whole | {"note": 3},
        whole | {"rows": Group(rows={"t": {b"k": row(b"k", 1), b"l": no_row}})},
    ]
    for broken in parts:
        with pytest.raises((TypeError, AttributeError)):
            store.create("a", b"broken", **broken)
        assert store.journals() == []
        with pytest.raises(UnknownJournal):
            store.read("a")
    store.create("a", b"config", b"first", b"note")
    with pytest.raises(JournalExists):
        store.create("a", b"other", b"other", b"other")
    recovery = store.read("a")
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

    @property
    def seq(self) -> int:
        return self.snapshot_seq + len(self.entries)

    def take(self, group: Group) -> None:
        self.entries += group.entries
        self.note = self.note if group.note is None else group.note
        for table, position in group.forget.items():
            self.tables[table] = {k: one for k, one in self.tables[table].items() if one.position > position}
        for table, keys in group.drop.items():
            self.tables[table] = {k: one for k, one in self.tables[table].items() if k not in keys}
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

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name in self.models:
            with pytest.raises(JournalExists):
                self.store.create(name, b"other", b"other")
        else:
            self.store.create(name, name.encode(), b"first")
            self.models[name] = Model()

    @rule(name=NAMES, after=st.integers(-1, 20))
    def read(self, name: str, after: int) -> None:
        model = self.models.get(name)
        if model is None:
            with pytest.raises(UnknownJournal):
                self.store.read(name)
            return
        known = min(after, model.seq)
        tail = self.store.read(name, known)
        assert tail.journal.config == name.encode()
        assert (tail.journal.seq, tail.journal.snapshot_seq) == (model.seq, model.snapshot_seq)
        if known < model.snapshot_seq:
            assert (tail.snapshot, list(tail.entries)) == (model.snapshot, model.entries)
        else:
            assert (tail.snapshot, list(tail.entries)) == (None, model.entries[known - model.snapshot_seq :])

    @rule(name=NAMES, group=GROUPS, off=st.sampled_from([0, 0, 0, -1, 1]), dropped=st.binary(max_size=1))
    def append(self, name: str, group: Group, off: int, dropped: bytes) -> None:
        model = self.models.get(name)
        if model is None:
            return
        if not any(dropped in put for put in group.rows.values()):
            group = replace(group, drop={"t": {dropped}})
        with self.store.turn(name, model.seq):
            if off:
                with pytest.raises(JournalLost):
                    self.store.append(name, model.seq + off, group)
                return
            assert self.store.append(name, model.seq, group) == model.seq + len(group.entries)
        model.take(group)

    @rule(name=NAMES, table=TABLES, key=st.binary(max_size=1), value=VALUES, same=st.booleans())
    def swap(self, name: str, table: str, key: bytes, value: bytes, same: bool) -> None:
        model = self.models.get(name)
        if model is not None:
            old = model.tables[table].get(key, Row(key, 1, b""))
            thought = old if same else old._replace(value=old.value + b"x")
            done = self.store.swap(name, table, [Swap(thought, old._replace(value=value))])
            assert done == ({key} if same and key in model.tables[table] else set())
            model.tables[table] |= {key: old._replace(value=value) for key in done}

    @rule(name=NAMES, snapshot=VALUES, added=st.lists(VALUES, max_size=2), last=st.none() | st.integers(0, 9))
    def compact(self, name: str, snapshot: bytes, added: list[bytes], last: int | None) -> None:
        model = self.models.get(name)
        if model is not None:
            table = next(iter(model.tables))
            note = None if last is None else snapshot
            group = Group(added, forget={} if last is None else {table: last}, note=note)
            compact(self.store, name, model.seq, snapshot, group)
            model.take(group)
            model.snapshot, model.snapshot_seq, model.entries = snapshot, model.seq, []

    @precondition(lambda self: self.models)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open_store()

    @rule(name=NAMES, table=TABLES, after=st.integers(-2, 5), limit=st.integers(0, 5))
    def look(self, name: str, table: str, after: int, limit: int) -> None:
        model = self.models.get(name)
        if model is not None:
            held = model.tables[table]
            positions = sorted(one.position for one in held.values() if one.position > after)[:limit]
            found = self.store.scan(name, table, after, limit)
            assert [one.position for one in found] == positions
            assert all(held[one.key] == one for one in found)

    @invariant()
    def rows_agree(self) -> None:
        for name, model in self.models.items():
            for table, held in model.tables.items():
                assert self.store.find(name, table, [*held, b"missing"]) == held
                assert len(self.store.scan(name, table, -2, 1000)) == len(held)

    @invariant()
    def heads_agree(self) -> None:
        found = {one.name: (one.note, one.seq, one.snapshot_seq) for one in self.store.journals()}
        assert found == {name: (model.note, model.seq, model.snapshot_seq) for name, model in self.models.items()}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
