"""The tables of a store in PostgreSQL, and how a journal's raw data are left behind as a whole.

A journal has two tables with raw data, its log and its rows, and they carry a generation in their names.  A snapshot
begins the next generation: it is the first thing in a new log, rows that are still known are copied into a new table,
and both old tables are dropped in the same transaction.  PostgreSQL then cuts their files to nothing.  Deleting rows
would leave every byte of them in the files: a vacuum marks their space as free and does not overwrite it.

The columns with raw data have no statistics: an analysis would copy some of their values into a table of the system.
"""

from __future__ import annotations

from typing import Final

from tacit.service.store_parts import CHUNK

SCHEMA: Final = "tacit"
FORMAT: Final = 1
TABLES: Final = (
    "CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL)",
    # the order of bytes, whatever language the database is in
    'CREATE TABLE journals (id bigserial PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, config bytea NOT NULL)',
    # what changes with every group, with room for new versions beside the old ones
    "CREATE TABLE heads (journal bigint PRIMARY KEY REFERENCES journals, epoch bigint NOT NULL, seq bigint NOT NULL,"
    " snapshot_seq bigint NOT NULL, generation bigint NOT NULL, note bytea NOT NULL) WITH (fillfactor = 20)",
    'CREATE TABLE settings (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)',
    # processes that serve the database (tacit.service.cluster); empty after a crash of the server
    "CREATE UNLOGGED TABLE members (id text PRIMARY KEY, address text NOT NULL, joined timestamptz NOT NULL,"
    " seen timestamptz NOT NULL)",
)

ADD_JOURNAL: Final = "INSERT INTO journals (name, config) VALUES (%s, %b) ON CONFLICT DO NOTHING RETURNING id"
ADD_HEAD: Final = "INSERT INTO heads VALUES (%s, 0, 0, 0, 0, %b)"
HEADS: Final = (
    "SELECT name, config, note, epoch, seq, snapshot_seq FROM journals JOIN heads ON journal = id ORDER BY name"
)
_NAMED: Final = "FROM journals WHERE journal = id AND name = %(name)s"
_COMPARED: Final = f"{_NAMED} AND epoch = %(epoch)s AND seq = %(seq)s RETURNING journal, generation"
CLAIM: Final = (
    f"UPDATE heads SET epoch = epoch + 1 {_NAMED} RETURNING journal, generation, config, note, epoch, seq, snapshot_seq"
)
ADVANCE: Final = f"UPDATE heads SET seq = seq + %(count)s, note = coalesce(%(note)b, note) {_COMPARED}"
COMPACT: Final = f"UPDATE heads SET snapshot_seq = seq, generation = generation + 1 {_COMPARED}"
GENERATION: Final = "SELECT journal, generation FROM heads, journals WHERE journal = id AND name = %s AND epoch = %s"
SETTINGS: Final = "SELECT name, value FROM settings WHERE starts_with(name, %s) ORDER BY name"
DELETE_SETTINGS: Final = "DELETE FROM settings WHERE name = ANY(%s)"
PUT_SETTING: Final = "INSERT INTO settings VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Generation:
    """Statements on the two tables of a journal's generation."""

    def __init__(self, journal: int, generation: int) -> None:
        self.journal, self.generation = journal, generation
        self._log = log = f"log_{journal:d}_{generation:d}"
        self._rows = rows = f"rows_{journal:d}_{generation:d}"
        self.begin = f"INSERT INTO {log} VALUES (%s, %b)"
        self.snapshot = self._owned("entry", f"SELECT entry FROM {log} WHERE seq = %s")
        self.ends = self._owned("first, last", f"SELECT min(seq) first, max(seq) last FROM {log} WHERE seq > %s")
        some = f"SELECT seq, entry FROM {log} WHERE seq > %s ORDER BY seq LIMIT {CHUNK}"
        self.entries = self._owned("found.seq, entry", some) + " ORDER BY found.seq"
        row, by_position = "key, position, value", "ORDER BY position, key"
        one = f"SELECT * FROM {rows} WHERE name = %s AND key = wanted LIMIT 1"  # the limit keeps it one by one
        self.find = self._owned(row, f"SELECT row.* FROM unnest(%b::bytea[]) wanted CROSS JOIN LATERAL ({one}) row")
        some = f"SELECT * FROM {rows} WHERE name = %s AND position > %s {by_position} LIMIT %s"
        self.scan = self._owned(row, some) + f" {by_position}"

    def _owned(self, columns: str, query: str) -> str:
        """What a query finds, for the owner: without any row somebody else is; one of nulls says that it is empty."""
        found = f"heads LEFT JOIN LATERAL ({query}) found ON true"
        return f"SELECT {columns} FROM {found} WHERE journal = {self.journal:d} AND epoch = %s"

    def change(self, *, entries: bool, forgotten: int, rows: bool) -> str:
        """A compare-and-set with all changes of a group; no row is returned, and nothing changed, where it fails.

        It is one statement, so that no lock waits for its caller: one that is paused, or cut off, stops nobody.  Parts
        of a statement do not see each other, and what is put is therefore not deleted before.
        """
        parts = [f"head AS ({ADVANCE})"]
        if entries:
            new = "unnest(%(numbers)b::bigint[], %(entries)b::bytea[]) new (number, entry)"
            parts.append(f"logged AS (INSERT INTO {self._log} SELECT number, entry FROM head, {new})")
        parts += [f"forgotten_{index} AS ({self._forget(index, rows)})" for index in range(forgotten)]
        if rows:
            parts.append(f"put AS ({self._put()})")
        return f"WITH {', '.join(parts)} SELECT journal FROM head"

    def _forget(self, index: int, rows: bool) -> str:
        last = f"name = %(table_{index})s AND position <= %(last_{index})s"
        put = "SELECT * FROM unnest(%(names)s::text[], %(keys)b::bytea[])"
        return f"DELETE FROM {self._rows} USING head WHERE {last}" + (
            f" AND (name, key) NOT IN ({put})" if rows else ""
        )

    def _put(self) -> str:
        columns = "%(names)s::text[], %(keys)b::bytea[], %(positions)b::bigint[], %(values)b::bytea[]"
        return (
            f"INSERT INTO {self._rows} SELECT new.* FROM head, unnest({columns}) new"
            " ON CONFLICT (name, key) DO UPDATE SET position = excluded.position, value = excluded.value"
        )

    def build(self) -> tuple[str, ...]:
        """How its tables are made."""
        return (*self._tables(), *self._order())

    def _tables(self) -> tuple[str, ...]:
        return (
            f"CREATE TABLE {self._log} (seq bigint PRIMARY KEY, entry bytea NOT NULL)",
            f"ALTER TABLE {self._log} ALTER entry SET STATISTICS 0",
            f'CREATE TABLE {self._rows} (name text COLLATE "C", key bytea, position bigint NOT NULL,'
            " value bytea NOT NULL) WITH (fillfactor = 70)",
            f"ALTER TABLE {self._rows} ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0",
        )

    def _order(self) -> tuple[str, ...]:
        """How rows are found again, by key and by position."""
        return (
            f"ALTER TABLE {self._rows} ADD PRIMARY KEY (name, key)",
            f"CREATE INDEX ON {self._rows} (name, position, key)",
        )

    def following(self) -> Generation:
        """The next one."""
        return Generation(self.journal, self.generation + 1)

    def follow(self) -> tuple[str, ...]:
        """How the next generation is made, with the same rows and an empty log, and this one is dropped."""
        following = self.following()
        copy = f"INSERT INTO {following._rows} SELECT * FROM {self._rows}"
        return (*following._tables(), copy, *following._order(), f"DROP TABLE {self._log}, {self._rows}")
