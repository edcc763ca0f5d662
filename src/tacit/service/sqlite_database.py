"""A connection to the database of a store: what a store asks of it, checkpoints, and erasure."""

from __future__ import annotations

import ctypes
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tacit.errors import StoreFailed

CHECKPOINT_TRIES = 20

Values = Sequence[Any]


class Database:
    """The few things that a store asks of a connection, so that tests can put a disk of their own under it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def run(self, statement: str, values: Values = ()) -> int:
        """Carry out a statement; returns how many rows it changed."""
        return self._connection.execute(statement, values).rowcount

    def run_many(self, statement: str, many: Iterable[Values]) -> None:
        """Carry out a statement with each of many sets of values."""
        self._connection.executemany(statement, many)

    def rows(self, statement: str, values: Values = ()) -> list[Any]:
        """All rows that a query gives."""
        return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """End in good order: SQLite moves what is in its log into the database and deletes the log."""
        self._connection.close()

    def abandon(self) -> None:
        """End without another write: after a failure a checkpoint could spread what is not durable.

        Before Python 3.12 nothing can tell SQLite so: the connection stays open until the process has ended, and the
        store cannot be opened again in it.
        """
        if sys.version_info >= (3, 12):
            self._connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
            self._connection.close()
        else:
            self.keep_forever()

    def keep_forever(self) -> None:
        """Never let Python close the connection, not at its end either.

        In a forked process that would move and delete the log which the parent goes on writing.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


Connect = Callable[[Path], Database]


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file does not hold what it should, rather than that something failed."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def checkpoint(database: Database) -> None:
    """Move everything into the database and empty the log, or raise ``StoreFailed``.

    A passive checkpoint would leave the log as it is, with all that was ever written to it.
    """
    log = database.path.with_name(database.path.name + "-wal")
    for attempt in range(CHECKPOINT_TRIES):
        time.sleep(0.01 * attempt)
        busy = database.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        if not busy and (not log.exists() or log.stat().st_size == 0):
            return
    raise StoreFailed(f"the log of {database.path} cannot be emptied: does another program read it?")


def erase(database: Database) -> None:
    """Write the database anew, without the bytes of anything that was deleted or replaced; checkpoint included.

    SQLite's secure_delete alone is not enough: a page that it rearranges keeps copies of rows in its unused middle, and
    deleting such a row overwrites one of them only.  Takes as much memory as the database has bytes.
    """
    database.run("VACUUM")
    database.run("UPDATE meta SET value = 0 WHERE name = 'erasing'")
    checkpoint(database)
