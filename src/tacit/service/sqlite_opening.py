"""How a store on disk is made and opened: nothing is answered before it was found sound, original and durable."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tacit.errors import StoreDamaged, StoreError, StoreFailed, StoreInUse, StoreMoved, StoreTooNew
from tacit.service.seals import damaged
from tacit.service.sqlite_database import Connect, Database, checkpoint, erase, is_damage
from tacit.service.sqlite_files import DATABASE, identity, make_durable, sync_folder

APPLICATION = 0x54616369
"""Says that a file is a store of this package ("Taci")."""
FORMAT = 2
FROM_FORMAT_1 = ("ALTER TABLE heads DROP COLUMN epoch", f"PRAGMA user_version = {FORMAT}")
"""Before 0.3 a journal counted its owners, by epochs."""
SETUP = (
    "PRAGMA busy_timeout = 1000",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA temp_store = MEMORY",  # nothing of the store is ever written outside of its folder
    "PRAGMA secure_delete = ON",
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves data in the cache of the disk
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA wal_autocheckpoint = 0",  # SQLite ignores errors of its own checkpoints; the store makes them itself
    "PRAGMA locking_mode = EXCLUSIVE",  # other programs cannot read or change the database while the store is open
    # after the locking mode, since it reads the database; in kB: ids of events are anywhere in their table
    "PRAGMA cache_size = -65536",
)
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    "CREATE TABLE journals (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, config BLOB NOT NULL)",
    # what changes with every group is apart from what is large, which SQLite would write again each time
    "CREATE TABLE heads (journal INTEGER PRIMARY KEY, seq INTEGER NOT NULL, snapshot_seq INTEGER NOT NULL,"
    " note BLOB NOT NULL)",
    "CREATE TABLE snapshots (journal INTEGER PRIMARY KEY, snapshot BLOB NOT NULL)",
    "CREATE TABLE entries (journal INTEGER, seq INTEGER, entry BLOB NOT NULL,"
    " PRIMARY KEY (journal, seq)) WITHOUT ROWID",
    "CREATE TABLE rows (journal INTEGER, name TEXT, key BLOB, position INTEGER NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (journal, name, key)) WITHOUT ROWID",
    "CREATE INDEX rows_by_position ON rows (journal, name, position)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)


def open_database(folder: Path, connect: Connect, synchronous: str, *, moved_too: bool = False) -> Database:
    """The database of a folder that is locked already; made if there is none.

    ``moved_too``: also where it is a copy, for those who release nothing.
    """
    path = folder / DATABASE
    log = path.with_name(DATABASE + "-wal")
    try:
        if not path.exists():
            if log.exists():
                damaged(f"{log} has no database beside it")
            _build(path)
        if path.stat().st_size == 0:
            damaged(f"{path} is empty")
        make_durable(log)
    except (OSError, sqlite3.Error) as error:
        raise StoreFailed(f"the store in {folder} cannot be made ready ({error}): check the disk") from error
    return _examined(connect(path), synchronous, moved_too)


def _build(path: Path) -> None:
    """An empty store, which gets its name when it is complete: an interrupted start leaves none, or all of it."""
    draft = path.with_name(path.name + ".new")
    for leftover in path.parent.glob(draft.name + "*"):
        leftover.unlink()
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = Database(draft)
    try:
        _set_up(database, "FULL")
        database.run("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            database.run(statement)
        meta = [("erasing", 0), ("identity", identity(draft))]
        database.run_many("INSERT INTO meta VALUES (?, ?)", meta)
        database.run("COMMIT")
        checkpoint(database)
    finally:
        database.close()
    draft.rename(path)  # the same inode: the identity is that of the store
    sync_folder(path.parent)


def _set_up(database: Database, synchronous: str) -> None:
    """Options of a connection, before anything is asked of it."""
    for statement in (*SETUP, f"PRAGMA synchronous = {synchronous}"):
        database.rows(statement)
    mode = database.rows("PRAGMA journal_mode = WAL")[0][0]
    if mode != "wal":
        raise StoreFailed(f"SQLite cannot keep a write-ahead log beside {database.path}: it answers {mode!r}")


def _examined(database: Database, synchronous: str, moved_too: bool) -> Database:
    """A connection through which the store may be used; closed again if it may not."""
    try:
        _set_up(database, synchronous)
        _check(database)
        if not moved_too:
            _check_identity(database)
        _migrate(database)
        checkpoint(database)
        if database.rows("SELECT value FROM meta WHERE name = 'erasing'")[0][0]:
            erase(database)  # a compaction was interrupted after its commit
    except StoreError:
        database.close()
        raise
    except (OSError, sqlite3.Error) as error:
        refusal = _refusal(database.path, error)
        if isinstance(refusal, StoreFailed):
            database.abandon()
        else:
            database.close()
        raise refusal from error
    return database


def _check(database: Database) -> None:
    """Refuse a database of another kind, of a later version, or that is not sound."""
    application = database.rows("PRAGMA application_id")[0][0]
    version = database.rows("PRAGMA user_version")[0][0]
    if application != APPLICATION:
        damaged(f"{database.path} is no store of Tacit")
    if version > FORMAT:
        raise StoreTooNew(
            f"{database.path} has format {version}, and this version of Tacit knows {FORMAT}: use the version that "
            "wrote it, or a later one"
        )
    found = database.rows("PRAGMA quick_check(1)")[0][0]
    if found != "ok":
        damaged(f"SQLite finds in {database.path}: {found}")


def _migrate(database: Database) -> None:
    """Bring a store of an earlier version to this one's format, all at once."""
    if database.rows("PRAGMA user_version")[0][0] < FORMAT:
        database.run("BEGIN IMMEDIATE")
        for statement in FROM_FORMAT_1:
            database.run(statement)
        database.run("COMMIT")


def _check_identity(database: Database) -> None:
    """Refuse a copy."""
    recorded = database.rows("SELECT value FROM meta WHERE name = 'identity'")[0][0]
    if recorded != identity(database.path):
        raise StoreMoved(
            f"{database.path} was made as {recorded} and is now {identity(database.path)}: it is a copy, or was moved, "
            "and the original may still go on; both would release the same rows. Start the original where it was, or "
            "take the public part of this one to a new folder: `tacit backup`, then `tacit restore`"
        )


def _refusal(path: Path, error: Exception) -> StoreError:
    """Why a store cannot be opened, by what SQLite says."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    if is_damage(error):
        return StoreDamaged(
            f"the store is damaged: {path} does not hold a database, or not all of it ({error}). Check the disk; "
            "`tacit restore` goes on from a backup"
        )
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreInUse(f"another program works on {path}, or this process has failed on it before: end that first")
    return StoreFailed(f"{path} cannot be opened ({error}): check the disk and its free space, then start again")
