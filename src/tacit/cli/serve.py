"""`tacit serve`, `tacit backup` and `tacit restore`: decisions over HTTP, and the stores that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import Refused, check_writable, messages

if TYPE_CHECKING:
    from tacit.service.store import Store


def serve(
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the store.", show_default="tacit-data")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port; 0 picks a free one.", show_default="8470")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML with these options and all bounds.")] = None,
    log_requests: Annotated[
        bool | None, typer.Option(help="Log requests, those that report rewards aside.", show_default="yes")
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="A PostgreSQL database, which several processes may serve.")
    ] = None,
) -> None:
    """Serve decisions over HTTP until Ctrl-C or SIGTERM; what was answered is on the disk.

    Writes an admin key to DIR/admin.key at its first start, and says where it listens.

    \b
    Examples:
      tacit serve
      tacit serve --data /var/lib/tacit --port 8470 --config tacit.toml
      tacit serve --database postgresql://tacit@db.example/tacit
    """
    from tacit.service.http.options import Options, read_options
    from tacit.service.http.server import serve as run

    given: dict[str, Any] = {
        "data": data and str(data),
        "database": database,
        "host": host,
        "port": port,
        "log_requests": log_requests,
    }
    own = {name: value for name, value in given.items() if value is not None}
    options = Options().changed((read_options(config) if config is not None else {}) | own)
    if options.database:
        import psycopg  # noqa: F401 - found out before anything is begun
    run(options)


File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Where = Annotated[str, typer.Argument(metavar="DIR|URL", help="Folder of the store, or URL of its database.")]


def backup(data: Where, file: File) -> None:
    """Write what is public of all policies of a store: configuration, releases, ledger.

    A folder must not be served meanwhile; a database may.  A store itself must never be copied and started twice; a
    backup may, since it holds no rows.

    \b
    Example:
      tacit backup tacit-data monday.backup
    """
    from tacit.service.backup import back_up_store

    check_writable(file)
    with opened(data, moved_too=True) as store:  # a copy too: a backup releases nothing again
        kept = back_up_store(store, file)
    messages().print(f"{len(kept)} policies are in {file}: {', '.join(kept) or 'none'}")
    if any(each.users for each in kept.values()):
        messages().print("It holds the counters of users and the key of their hashes: keep it secret.")


Accept = Annotated[
    bool,
    typer.Option(
        "--accept-user-cost",
        help="Where users are counted: let decisions made since the backup count again, as one more life.",
    ),
]
Silent = Annotated[
    bool,
    typer.Option(
        "--nothing-released-since",
        help="Where users are counted: declare that nothing was released since the backup, nor ever will be elsewhere.",
    ),
]


def restore(file: File, data: Where, accept_user_cost: Accept = False, nothing_released_since: Silent = False) -> None:
    """Begin the policies of a backup in a new folder or database; what was learned after their last release is lost.

    Where users are counted, decisions made since the backup count again: accept what that costs a person, or declare
    that nothing was released since.

    \b
    Examples:
      tacit restore monday.backup new-data
      tacit restore monday.backup new-data --accept-user-cost
    """
    from tacit.service.backup import restore_store
    from tacit.service.events import HASH_KEY
    from tacit.service.lives import lives_of

    if not file.is_file():
        raise Refused(f"there is no file {file}")
    with opened(data, new=True) as store:
        if store.shared and store.settings(HASH_KEY):  # whoever serves it knows users by hashes under this key
            raise Refused("the database has been served already: policies are restored into a new one")
        kept = restore_store(
            file, store, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since
        )
    messages().print(
        f"{len(kept)} policies are in {'the database' if is_database(data) else data}: {', '.join(kept) or 'none'}"
    )
    for name, each in kept.items():
        if each.counts_users:
            messages().print(f"{name}: a person may lose {each.cost(lives_of(each.note))}.")


_URLS = ("postgresql://", "postgres://")


def is_database(where: str) -> bool:
    """Return whether ``where`` is the URL of a database rather than a folder."""
    return where.startswith(_URLS)


@contextmanager
def opened(where: str, *, new: bool = False, moved_too: bool = False) -> Iterator[Store]:
    """Open the store in a folder, for this process alone, or in a database, which others may have open too.

    Raise `StoreInUse` for a folder that is served.  Unless it is ``new``, the store must be there.  ``moved_too`` opens
    a copy too.
    """
    store = _database(where, new, moved_too) if is_database(where) else _folder(Path(where), new, moved_too)
    try:
        yield store
    finally:
        store.close()


def _database(url: str, new: bool, moved_too: bool) -> Store:
    from tacit.service.postgres_store import PostgresStore

    return PostgresStore(url, make=new, moved_too=moved_too)


def _folder(folder: Path, new: bool, moved_too: bool) -> Store:
    from tacit.service.sqlite_store import SQLiteStore

    if not new and not folder.is_dir():
        raise Refused(f"there is no store in {folder}; tacit serve --data {folder} makes one")
    return SQLiteStore(folder, moved_too=moved_too)
