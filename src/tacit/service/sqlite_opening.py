"""How a database on disk is made, opened, checkpointed and erased.

Nothing is answered before a store was found sound, original and durable.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tacit.errors import StoreError, StoreFailed, StoreInUse
from tacit.policies.persistence import sync_folder
from tacit.service.packing import damaged
from tacit.service.sqlite_files import DATABASE, identity, make_durable
from tacit.service.store import check_format, check_identity

Connect = Callable[[Path], sqlite3.Connection]
CHECKPOINT_TRIES = 20
_NO_CHECKPOINT_ON_CLOSE = 1006
"""SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, which Python has a name for since 3.12."""
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


def connected(path: Path) -> sqlite3.Connection:
    """A connection that leaves transactions to the store, and lets all its threads use it."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def open_database(folder: Path, connect: Connect, synchronous: str, *, moved_too: bool) -> sqlite3.Connection:
    """A connection to the database of a folder that is locked already; made if there is none.

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
    connection = connect(path)
    try:
        _set_up(connection, path, synchronous)
        _check(connection, path, moved_too)
        checkpoint(connection, path)
        if _value(connection, "SELECT value FROM meta WHERE name = 'erasing'"):
            erase(connection, path)  # a compaction was interrupted after its commit
    except StoreError:
        connection.close()
        raise
    except (OSError, sqlite3.Error) as error:
        _refuse(connection, path, error)
    return connection


def _build(path: Path) -> None:
    """An empty store, which gets its name when it is complete: an interrupted start leaves none, or all of it."""
    draft = path.with_name(path.name + ".new")
    for leftover in path.parent.glob(draft.name + "*"):
        leftover.unlink()
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = connected(draft)
    try:
        _set_up(connection, draft, "FULL")
        _run_together(connection, SCHEMA)
        connection.execute("INSERT INTO meta VALUES ('erasing', 0), ('identity', ?)", (identity(draft),))
        checkpoint(connection, draft)
    finally:
        connection.close()
    draft.rename(path)  # the same inode: the identity is that of the store
    sync_folder(path.parent)


def _set_up(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    """Options of a connection, before anything is asked of it."""
    for statement in (*SETUP, f"PRAGMA synchronous = {synchronous}"):
        connection.execute(statement).fetchall()
    if (mode := _value(connection, "PRAGMA journal_mode = WAL")) != "wal":
        raise StoreFailed(f"SQLite cannot keep a write-ahead log beside {path}: it answers {mode!r}")


def _check(connection: sqlite3.Connection, path: Path, moved_too: bool) -> None:
    """Refuse a database of another kind, of a later version, that is not sound, or a copy; migrate an earlier one."""
    if _value(connection, "PRAGMA application_id") != APPLICATION:
        damaged(f"{path} is no store of Tacit")
    version = _value(connection, "PRAGMA user_version")
    check_format(path, version, FORMAT)
    if (found := _value(connection, "PRAGMA quick_check(1)")) != "ok":
        damaged(f"SQLite finds in {path}: {found}")
    if not moved_too:
        made = _value(connection, "SELECT value FROM meta WHERE name = 'identity'")
        check_identity(path, made, identity(path), "or was moved", " where it was", "folder")
    if version < FORMAT:
        _run_together(connection, FROM_FORMAT_1)


def _run_together(connection: sqlite3.Connection, statements: tuple[str, ...]) -> None:
    for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
        connection.execute(statement)


def _value(connection: sqlite3.Connection, query: str) -> Any:
    """The first value that a query finds."""
    return connection.execute(query).fetchall()[0][0]


def _refuse(connection: sqlite3.Connection, path: Path, error: sqlite3.Error | OSError) -> NoReturn:
    """End a connection, and raise why its store cannot be opened, by what SQLite says."""
    if is_damage(error):
        connection.close()
        damaged(f"{path} does not hold a database, or not all of it ({error})")
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        connection.close()
        words = f"another program works on {path}, or this process has failed on it before: end that first"
        raise StoreInUse(words) from error
    abandon(connection)
    words = f"{path} cannot be opened ({error}): check the disk and its free space, then start again"
    raise StoreFailed(words) from error


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file does not hold what it should, rather than that something failed."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: BaseException) -> int:
    """The primary result code of an error of SQLite."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def checkpoint(connection: sqlite3.Connection, path: Path) -> None:
    """Move everything into the database and empty the log, or raise ``StoreFailed``.

    A passive checkpoint would leave the log as it is, with all that was ever written to it.
    """
    log = path.with_name(path.name + "-wal")
    for attempt in range(CHECKPOINT_TRIES):
        time.sleep(0.01 * attempt)
        busy = _value(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        if not busy and (not log.exists() or log.stat().st_size == 0):
            return
    raise StoreFailed(f"the log of {path} cannot be emptied: does another program read it?")


def erase(connection: sqlite3.Connection, path: Path) -> None:
    """Write the database anew, without the bytes of anything that was deleted or replaced; checkpoint included.

    SQLite's secure_delete alone is not enough: a page that it rearranges keeps copies of rows in its unused middle, and
    deleting such a row overwrites one of them only.  Takes as much memory as the database has bytes.
    """
    connection.execute("VACUUM")
    connection.execute("UPDATE meta SET value = 0 WHERE name = 'erasing'")
    checkpoint(connection, path)


def abandon(connection: sqlite3.Connection) -> None:
    """End a connection without another write: after a failure a checkpoint could spread what is not durable.

    Before Python 3.12 nothing can tell SQLite so: the connection stays open until the process has ended, and the store
    cannot be opened again in it.
    """
    if hasattr(connection, "setconfig"):
        connection.setconfig(_NO_CHECKPOINT_ON_CLOSE, True)
        connection.close()
    else:
        keep_forever(connection)


def keep_forever(connection: sqlite3.Connection) -> None:
    """Never let Python close a connection, not at its end either.

    In a forked process that would move and delete the log which the parent goes on writing.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
