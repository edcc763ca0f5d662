"""The tables of a store in PostgreSQL, and how a journal's raw data are left behind as a whole.

A journal has two tables with raw data, its log and its rows, and they carry a generation in their names.  A snapshot
begins the next generation: it is the first thing in a new log, rows that are still known are copied into a new table,
and both old tables are dropped in the same transaction.  PostgreSQL then cuts their files to nothing.  Deleting rows
would leave every byte of them in the files: a vacuum marks their space as free and does not overwrite it.

The columns with raw data have no statistics: an analysis would copy some of their values into a table of the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.service.store import CHUNK, REPLAY, Group, Swap

Values = Sequence[Any] | Mapping[str, Any]
"""Parameters of a statement."""


class Generation:
    """Statements on a journal's head and on the two tables of one of its generations."""

    def __init__(self, journal: int, generation: int) -> None:
        self.journal, self.generation = journal, generation
        self._log = log = f"log_{journal:d}_{generation:d}"
        self._rows = f"rows_{journal:d}_{generation:d}"
        self.lock = f"SELECT version, seq, snapshot_seq, note FROM heads WHERE journal = {journal:d} FOR NO KEY UPDATE"
        self.lock_all = f"LOCK TABLE {log}, {self._rows} IN ACCESS EXCLUSIVE MODE"
        self.begin = f"INSERT INTO {log} VALUES (%s, %b)"
        snapshot = f"SELECT entry FROM {log} WHERE seq = %(seq)s"
        self.start = f"SELECT ({snapshot}), min(seq), max(seq) FROM {log} WHERE seq > %(seq)s"
        self.tail = f"SELECT seq, entry FROM {log} WHERE seq > {{}} ORDER BY seq LIMIT {{}}"
        self.entries = self.tail.format("%s", CHUNK)

    def find(self, lock: bool) -> str:
        """Rows under many keys, each looked up by itself: so many at once make PostgreSQL read all of an index."""
        one = f"SELECT key, position, value FROM {self._rows} WHERE name = %s AND key = wanted LIMIT 1{_locked(lock)}"
        return f"SELECT row.* FROM unnest(%b::bytea[]) wanted CROSS JOIN LATERAL ({one}) row"

    def scan(self, lock: bool) -> str:
        """The first rows after a position."""
        some = f"SELECT key, position, value FROM {self._rows} WHERE name = %s AND position > %s"
        return f"{some} ORDER BY position, key LIMIT %s{_locked(lock)}"

    def change(self, name: str, seq: int, group: Group) -> tuple[str, dict[str, Any]]:
        """A compare-and-set with all changes of a group; no row is returned, and nothing changed, where it fails.

        Parts of a statement do not see each other, and what is put is therefore not deleted before.
        """
        compared = "WHERE journal = %(journal)s AND seq = %(seq)s RETURNING journal"
        changed = f"seq = seq + %(count)s, note = coalesce(%(note)b, note), version = {REPLAY}"
        parts = [f"head AS (UPDATE heads SET {changed} {compared})"]
        values = {"journal": self.journal, "seq": seq, "count": len(group.entries), "note": group.sealed_note(name)}
        if group.entries:
            new = "unnest(%(numbers)b::bigint[], %(entries)b::bytea[]) new (number, entry)"
            parts.append(f"logged AS (INSERT INTO {self._log} SELECT number, entry FROM head, {new})")
            values |= _columns("numbers entries", group.sealed_entries(self.journal, seq))
        rows = group.sealed_rows(self.journal)
        if group.forget:
            past = "unnest(%(forget_names)s::text[], %(forget_last)b::bigint[]) past (name, last)"
            kept = "AND (old.name, old.key) NOT IN (SELECT * FROM unnest(%(names)s::text[], %(keys)b::bytea[]))"
            where = f"old.name = past.name AND old.position <= past.last {kept if rows else ''}"
            parts.append(f"forgotten AS (DELETE FROM {self._rows} old USING head, {past} WHERE {where})")
            values |= _columns("forget_names forget_last", list(group.forget.items()))
        if dropped := group.dropped():
            gone = "unnest(%(drop_names)s::text[], %(drop_keys)b::bytea[]) gone (name, key)"
            where = "old.name = gone.name AND old.key = gone.key"
            parts.append(f"dropped AS (DELETE FROM {self._rows} old USING head, {gone} WHERE {where})")
            values |= _columns("drop_names drop_keys", dropped)
        if rows:
            columns = "%(names)s::text[], %(keys)b::bytea[], %(positions)b::bigint[], %(values)b::bytea[]"
            new = f"SELECT new.* FROM head, unnest({columns}) new (name, key, position, value)"
            put = "ON CONFLICT (name, key) DO UPDATE SET position = excluded.position, value = excluded.value"
            parts.append(f"put AS (INSERT INTO {self._rows} {new} {put})")
            values |= _columns("names keys positions values", rows)
        return f"WITH {', '.join(parts)} SELECT journal FROM head", values

    def swap(self, table: str, swaps: Sequence[Swap], beside: str) -> tuple[str, dict[str, Any]]:
        """Rows that are as expected are replaced, those that another session has locked left out.

        One statement: no process waits for one that is paused in the middle, and it waits for none.
        """
        new = "unnest(%(keys)b::bytea[], %(olds)b::bytea[], %(news)b::bytea[]) new (key, old, value)"
        same = f"SELECT key FROM {self._rows} WHERE name = %(table)s AND key = new.key AND value = new.old"
        free = f"SELECT new.* FROM {new} CROSS JOIN LATERAL ({same} LIMIT 1 FOR UPDATE SKIP LOCKED) same"
        done = (
            f"UPDATE {self._rows} old SET value = free.value FROM free"
            " WHERE old.name = %(table)s AND old.key = free.key RETURNING old.key"
        )
        also = "unnest(%(others)b::bytea[], %(positions)b::bigint[], %(values)b::bytea[]) also (key, position, value)"
        beside_done = f"SELECT %(beside)s, also.* FROM {also} JOIN done USING (key)"
        put = f"INSERT INTO {self._rows} {beside_done} ON CONFLICT (name, key) DO NOTHING"
        text = f"WITH free AS ({free}), done AS ({done}), put AS ({put}) SELECT key FROM done"
        rows = [(old.key, *(row.sealed(self.journal, table).value for row in (old, to))) for old, to, _ in swaps]
        others = [other.sealed(self.journal, beside) for *_, other in swaps if other is not None]
        values = _columns("keys olds news", rows) | _columns("others positions values", others)
        return text, {"table": table, "beside": beside, **values}

    def tables(self) -> tuple[str, ...]:
        """How the log and the table of rows are made."""
        return (
            f"CREATE TABLE {self._log} (seq bigint PRIMARY KEY, entry bytea NOT NULL)",
            f"ALTER TABLE {self._log} ALTER entry SET STATISTICS 0",
            f'CREATE TABLE {self._rows} (name text COLLATE "C", key bytea, position bigint NOT NULL,'
            " value bytea NOT NULL) WITH (fillfactor = 70)",
            f"ALTER TABLE {self._rows} ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0",
        )

    def indexes(self) -> tuple[str, ...]:
        """How rows are found again, by key and by position."""
        return (
            f"ALTER TABLE {self._rows} ADD PRIMARY KEY (name, key)",
            f"CREATE INDEX ON {self._rows} (name, position, key)",
        )

    def follow(self) -> tuple[Generation, str, tuple[str, ...]]:
        """The next generation, a lock, and how it is made, with these rows and an empty log, and this one is dropped.

        Rows are swapped without a turn, and not while they are copied: the lock is the strongest that lets others read.
        """
        following = Generation(self.journal, self.generation + 1)
        lock = f"LOCK TABLE {self._rows} IN EXCLUSIVE MODE"
        copy = f"INSERT INTO {following._rows} SELECT * FROM {self._rows}"
        drop = f"DROP TABLE {self._log}, {self._rows}"
        return following, lock, (*following.tables(), copy, *following.indexes(), drop)


def _locked(lock: bool) -> str:
    return " FOR UPDATE" if lock else ""


def _columns(names: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The columns of some rows under these names, as ``unnest`` takes them."""
    return {name: [row[index] for row in rows] for index, name in enumerate(names.split())}
