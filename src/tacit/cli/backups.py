"""`tacit backup` and `tacit restore`: what is public of a store, in a file that may be copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.serve import missing
from tacit.cli.shared import Refused, check_writable, messages

if TYPE_CHECKING:
    from tacit.service.sqlite_store import SQLiteStore
    from tacit.service.store import Store

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Where = Annotated[str, typer.Argument(metavar="DIR|URL", help="Folder of the store, or URL of its database.")]
_URLS = ("postgresql://", "postgres://")


def backup(data: Where, file: File) -> None:
    """Write what is public of all policies of a store that is not being served: configuration, releases, ledger.

    A store itself must never be copied and started twice; a backup may, since it holds no rows.

    \b
    Example:
      tacit backup tacit-data monday.backup
    """
    from tacit.service.backup import back_up_store

    check_writable(file)
    with _store(data, new=False) as store:
        kept = back_up_store(store, file)
    messages().print(f"{len(kept)} policies are in {file}: {', '.join(kept) or 'none'}")
    if any(each.users for each in kept.values()):
        messages().print("It holds the counters of users and the key of their hashes: keep it secret.")


def restore(file: File, data: Where) -> None:
    """Begin the policies of a backup in a new folder or database; what was learned after their last release is lost.

    \b
    Example:
      tacit restore monday.backup new-data
    """
    from tacit.service.backup import restore_store

    if not file.is_file():
        raise Refused(f"there is no file {file}")
    with _store(data, new=True) as store:
        kept = restore_store(file, store)
    messages().print(
        f"{len(kept)} policies are in {'the database' if data.startswith(_URLS) else data}: {', '.join(kept) or 'none'}"
    )


@contextmanager
def _store(where: str, *, new: bool) -> Iterator[Store]:
    """A store that nobody else works on; unless it is new, also a copy, of which a backup releases nothing again."""
    with ExitStack() as ends:
        store: Store
        if where.startswith(_URLS):
            try:
                from tacit.service.cluster import alone
                from tacit.service.postgres_store import PostgresStore
            except ModuleNotFoundError as error:
                raise Refused(missing(error)) from error
            ends.enter_context(alone(where))
            store = PostgresStore(where, moved_too=not new)
        elif new:
            from tacit.service.sqlite_store import SQLiteStore

            store = SQLiteStore(Path(where))
        else:
            store = opened(Path(where), moved_too=True)
        ends.callback(store.close)
        yield store


def opened(folder: Path, *, moved_too: bool = False) -> SQLiteStore:
    """The store in a folder, which must be there."""
    from tacit.service.sqlite_store import SQLiteStore

    if not folder.is_dir():
        raise Refused(f"there is no store in {folder}; tacit serve --data {folder} makes one")
    return SQLiteStore(folder, moved_too=moved_too)
