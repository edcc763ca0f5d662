"""Stores that nobody else works on, for commands that open one themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.cli.shared import Refused

if TYPE_CHECKING:
    from tacit.service.store import Store

_URLS = ("postgresql://", "postgres://")


def is_database(where: str) -> bool:
    """Whether this is the URL of a database, and no folder."""
    return where.startswith(_URLS)


@contextmanager
def unserved(where: str, *, new: bool = False, moved_too: bool = False) -> Iterator[Store]:
    """The store in a folder or database, kept from all others meanwhile; refused while it is served.

    Unless it is ``new``, it must be there.  ``moved_too`` opens a copy too.
    """
    with ExitStack() as ends:
        store = _database(where, ends, new, moved_too) if is_database(where) else _folder(Path(where), new, moved_too)
        ends.callback(store.close)
        yield store


def _database(url: str, ends: ExitStack, new: bool, moved_too: bool) -> Store:
    from tacit.service.cluster import alone
    from tacit.service.postgres_store import PostgresStore

    ends.enter_context(alone(url))
    return PostgresStore(url, make=new, moved_too=moved_too)


def _folder(folder: Path, new: bool, moved_too: bool) -> Store:
    from tacit.service.sqlite_store import SQLiteStore

    if not new and not folder.is_dir():
        raise Refused(f"there is no store in {folder}; tacit serve --data {folder} makes one")
    return SQLiteStore(folder, moved_too=moved_too)
