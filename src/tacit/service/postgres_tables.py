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
FORMAT: Final = 2
TABLES: Final = (
    "CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL)",
    # the order of bytes, whatever language the database is in
    'CREATE TABLE journals (id bigserial PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, config bytea NOT NULL)',
    # what changes with every group, with room for new versions beside the old ones
    "CREATE TABLE heads (journal bigint PRIMARY KEY REFERENCES journals, seq bigint NOT NULL,"
    " snapshot_seq bigint NOT NULL, generation bigint NOT NULL, note bytea NOT NULL) WITH (fillfactor = 20)",
    'CREATE TABLE settings (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)',
)

FROM_FORMAT_1: Final = ("ALTER TABLE heads DROP COLUMN epoch", "DROP TABLE IF EXISTS members")
"""Before 0.3 a journal counted its owners, by epochs, and processes said in a table that they were there."""
ADD_JOURNAL: Final = "INSERT INTO journals (name, config) VALUES (%s, %b) ON CONFLICT DO NOTHING RETURNING id"
ADD_HEAD: Final = "INSERT INTO heads VALUES (%s, 0, 0, 0, %b)"
_HEADS: Final = "FROM journals JOIN heads ON journal = id"
HEADS: Final = f"SELECT name, config, note, seq, snapshot_seq {_HEADS} ORDER BY name"
HEAD: Final = f"SELECT journal, generation, config, note, seq, snapshot_seq {_HEADS} WHERE name = %s"
LOCK: Final = "SELECT seq, snapshot_seq, note FROM heads WHERE journal = {:d} FOR NO KEY UPDATE"
_COMPARED: Final = "WHERE journal = %(journal)s AND seq = %(seq)s RETURNING journal"
ADVANCE: Final = f"UPDATE heads SET seq = seq + %(count)s, note = coalesce(%(note)b, note) {_COMPARED}"
COMPACT: Final = f"UPDATE heads SET snapshot_seq = seq, generation = generation + 1 {_COMPARED}"
SETTINGS: Final = "SELECT name, value FROM settings WHERE starts_with(name, %s) ORDER BY name"
DELETE_SETTINGS: Final = "DELETE FROM settings WHERE name = ANY(%s)"
ADD_SETTING: Final = "INSERT INTO settings VALUES (%s, %b) ON CONFLICT (name) DO NOTHING"
PUT_SETTING: Final = "INSERT INTO settings VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Generation:
    """Statements on the two tables of a journal's generation."""

    def __init__(self, journal: int, generation: int) -> None:
        self.journal, self.generation = journal, generation
        self._log = log = f"log_{journal:d}_{generation:d}"
        self._rows = rows = f"rows_{journal:d}_{generation:d}"
        self.begin = f"INSERT INTO {log} VALUES (%s, %b)"
        self.snapshot = f"SELECT entry FROM {log} WHERE seq = %s"
        self.ends = f"SELECT min(seq), max(seq) FROM {log} WHERE seq > %s"
        self.entries = f"SELECT seq, entry FROM {log} WHERE seq > %s ORDER BY seq LIMIT {CHUNK}"
        self.tail = f"SELECT seq, entry FROM {log} WHERE seq > {{:d}} ORDER BY seq LIMIT {{:d}}"
        self._one = f"SELECT key, position, value FROM {rows} WHERE name = %s AND key = wanted LIMIT 1"
        self._some = f"SELECT key, position, value FROM {rows} WHERE name = %s AND position > %s"

    def find(self, *, lock: bool) -> str:
        """Rows under many keys, each looked up by itself: so many at once make PostgreSQL read all of an index."""
        one = f"{self._one} FOR UPDATE" if lock else self._one
        return f"SELECT row.* FROM unnest(%b::bytea[]) wanted CROSS JOIN LATERAL ({one}) row"

    def scan(self, *, lock: bool) -> str:
        """The first rows after a position."""
        return f"{self._some} ORDER BY position, key LIMIT %s" + (" FOR UPDATE" if lock else "")

    def change(self, *, entries: bool, forgotten: int, dropped: bool, rows: bool) -> str:
        """A compare-and-set with all changes of a group; no row is returned, and nothing changed, where it fails.

        Parts of a statement do not see each other, and what is put is therefore not deleted before.
        """
        parts = [f"head AS ({ADVANCE})"]
        if entries:
            new = "unnest(%(numbers)b::bigint[], %(entries)b::bytea[]) new (number, entry)"
            parts.append(f"logged AS (INSERT INTO {self._log} SELECT number, entry FROM head, {new})")
        parts += [f"forgotten_{index} AS ({self._forget(index, rows)})" for index in range(forgotten)]
        if dropped:
            gone = "unnest(%(drop_names)s::text[], %(drop_keys)b::bytea[]) gone (name, key)"
            where = "old.name = gone.name AND old.key = gone.key"
            parts.append(f"dropped AS (DELETE FROM {self._rows} old USING head, {gone} WHERE {where})")
        if rows:
            parts.append(f"put AS ({self._put('head')})")
        return f"WITH {', '.join(parts)} SELECT journal FROM head"

    def _forget(self, index: int, rows: bool) -> str:
        last = f"name = %(table_{index})s AND position <= %(last_{index})s"
        put = "SELECT * FROM unnest(%(names)s::text[], %(keys)b::bytea[])"
        return f"DELETE FROM {self._rows} USING head WHERE {last}" + (
            f" AND (name, key) NOT IN ({put})" if rows else ""
        )

    def _put(self, wherever: str) -> str:
        columns = "%(names)s::text[], %(keys)b::bytea[], %(positions)b::bigint[], %(values)b::bytea[]"
        return (
            f"INSERT INTO {self._rows} SELECT new.* FROM {wherever}, unnest({columns}) new (name, key, position, value)"
            " ON CONFLICT (name, key) DO UPDATE SET position = excluded.position, value = excluded.value"
        )

    def put(self) -> str:
        """Rows of a new journal."""
        return self._put("(SELECT 1) always")

    def swap(self) -> str:
        """Rows that are what they were thought to be are replaced, those that somebody has locked left out.

        One statement: nobody waits for a process that is paused in the middle, and it waits for nobody.
        """
        new = "unnest(%(keys)b::bytea[], %(olds)b::bytea[], %(news)b::bytea[]) new (key, old, value)"
        same = f"SELECT key FROM {self._rows} WHERE name = %(table)s AND key = new.key AND value = new.old"
        free = f"SELECT new.* FROM {new} CROSS JOIN LATERAL ({same} LIMIT 1 FOR UPDATE SKIP LOCKED) same"
        done = (
            f"UPDATE {self._rows} old SET value = free.value FROM free"
            " WHERE old.name = %(table)s AND old.key = free.key RETURNING old.key"
        )
        columns = "%(beside_keys)b::bytea[], %(positions)b::bigint[], %(values)b::bytea[]"
        also = f"unnest({columns}) also (key, position, value)"
        put = f"INSERT INTO {self._rows} SELECT %(beside)s, also.* FROM {also} JOIN done USING (key)"
        kept = "ON CONFLICT (name, key) DO NOTHING"
        return f"WITH free AS ({free}), done AS ({done}), put AS ({put} {kept}) SELECT key FROM done"

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
        """How the next generation is made, with the same rows and an empty log, and this one is dropped.

        Rows are swapped without a turn, and not while they are copied: the lock is the strongest that lets others read.
        """
        following = self.following()
        lock = f"LOCK TABLE {self._rows} IN EXCLUSIVE MODE"
        copy = f"INSERT INTO {following._rows} SELECT * FROM {self._rows}"
        return (lock, *following._tables(), copy, *following._order(), f"DROP TABLE {self._log}, {self._rows}")
