"""`tacit backup`, `tacit restore` and `tacit adopt`: stores, and what may be copied of them.

A folder belongs to one process.  While it is served, commands ask the service, with the admin key that it has written
there; otherwise they open the store themselves, as they do with a database, whose processes notice at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.shared import Refused, check_writable, messages

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

    from tacit.service.backup import Kept
    from tacit.service.store import Store

_URLS = ("postgresql://", "postgres://")
_SECONDS = 10.0
"""Seconds that an answer of a service is waited for."""
_LONG = 600.0
"""Seconds that a backup is waited for."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Where = Annotated[str, typer.Argument(metavar="DIR|URL", help="Folder of the store, or URL of its database.")]
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


def backup(
    data: Where,
    file: File,
    keys: Annotated[bool, typer.Option("--keys", help="With the keys of callers, as hashes.")] = False,
) -> None:
    """Write what is public of all policies of a store: configuration, releases, ledger.

    Policies without privacy are left out: nothing of them is public.  The store may be served meanwhile.  A store
    itself must never be copied and started twice; a backup may, since it holds no rows.

    \b
    Examples:
      tacit backup tacit-data monday.backup
      tacit backup tacit-data monday.backup --keys
    """
    from tacit.service.backup import back_up_store, read_backup, write_new

    check_writable(file)
    with opened_or_served(data, moved_too=True) as found:  # a copy too: a backup releases nothing again
        if isinstance(found, RunningService):
            path = f"/v1/backup?keys={'true' if keys else 'false'}"
            data_found = found.call("GET", path, seconds=_LONG)
            if data_found is None:
                raise Refused("the service is of an earlier version: start it again")
            write_new(file, data_found)
        else:
            back_up_store(found, file, keys=keys)
    kept, _ = read_backup(file)  # which checks it, too
    callers = "and the keys of callers " if keys else ""
    messages().print(f"{len(kept)} policies {callers}are in {file}: {', '.join(kept) or 'none'}")
    if any(each.users for each in kept.values()):
        messages().print("It holds the counters of users and the key of their hashes: keep it secret.")


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
    from tacit.service.store import KEYS

    if not file.is_file():
        raise Refused(f"there is no file {file}")
    with opened(data, new=True) as store:
        if store.shared and store.settings(HASH_KEY):  # its processes know users by hashes under this key
            raise Refused("the database has been served already: policies are restored into a new one")
        kept = restore_store(
            file, store, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since
        )
        callers = "Keys of callers came back." if store.settings(KEYS) else "Keys of callers did not: make new ones."
    _say(kept, data)
    messages().print(callers)


def adopt(data: Where, accept_user_cost: Accept = False, nothing_released_since: Silent = False) -> None:
    """Let a copy of a store take over, such as a standby that was promoted; the original must never go on.

    As after a restore, policies go on from what is public, as a new cohort: waiting decisions and what was learned
    after the last release are erased.

    \b
    Example:
      tacit adopt postgresql://tacit@standby.example/tacit
    """
    from tacit.errors import StoreMoved
    from tacit.service.backup import adopt_store

    with suppress(StoreMoved), opened(data):
        raise Refused(f"{_place(data)} is the original already: only a copy, or a store that was moved, is adopted")
    with opened(data, moved_too=True) as store:
        kept = adopt_store(store, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since)
    _say(kept, data)
    messages().print("This store is the original now.")


def _say(kept: Mapping[str, Kept], data: str) -> None:
    """Say which policies go on, what came back and what did not, and what that may cost a person."""
    from tacit.service.lives import lives_of

    messages().print(f"{len(kept)} policies are in {_place(data)}: {', '.join(kept) or 'none'}")
    if kept:
        messages().print("Releases, ledger, clock and modes came back; decisions that waited for rewards did not.")
    for name, each in kept.items():
        if each.counts_users:
            messages().print(f"{name}: a person may lose {each.cost(lives_of(each.note))}.")


# Where a store is


def _place(data: str) -> str:
    return "the database" if data.startswith(_URLS) else data


@contextmanager
def opened(where: str, *, new: bool = False, moved_too: bool = False) -> Iterator[Store]:
    """Open the store in a folder, for this process alone, or in a database, which others may have open too.

    Raise `StoreInUse` for a folder that is served.  Unless it is ``new``, the store must be there.  ``moved_too`` opens
    a copy too.
    """
    store = _database(where, new, moved_too) if where.startswith(_URLS) else _folder(Path(where), new, moved_too)
    try:
        yield store
    finally:
        store.close()


def _database(url: str, new: bool, moved_too: bool) -> Store:
    from tacit.service.postgres_store import PostgresStore

    return PostgresStore(url, make=new, moved_too=moved_too)


def _folder(folder: Path, new: bool, moved_too: bool) -> Store:
    from tacit.service.sqlite_files import DATABASE
    from tacit.service.sqlite_store import SQLiteStore

    if not new and not (folder / DATABASE).exists():
        raise Refused(f"there is no store in {folder}; tacit serve --data {folder} makes one")
    return SQLiteStore(folder, moved_too=moved_too)


@contextmanager
def opened_or_served(where: str, *, moved_too: bool = False) -> Iterator[Store | RunningService]:
    """Open a store, or find the service that has it open."""
    from tacit.errors import StoreInUse

    with ExitStack() as ends:
        try:
            found: Store | RunningService = ends.enter_context(opened(where, moved_too=moved_too))
        except StoreInUse as error:
            if where.startswith(_URLS):
                raise
            address = _address(Path(where))
            if address is None:
                raise Refused(f"{error}; nor is there a service that answers and could be asked") from error
            found = RunningService(Path(where), address)
        yield found


def _address(folder: Path) -> str | None:
    """Find the service that was started with this folder, if it answers."""
    from tacit.service.http.options import ADDRESS_FILE

    path = folder / ADDRESS_FILE
    address = path.read_text().strip() if path.is_file() else ""
    return address if address and _answers(address) else None


def _answers(address: str) -> bool:
    from http.client import HTTPException

    try:
        with _opener().open(f"{address}/healthz", timeout=_SECONDS):
            return True
    except (OSError, HTTPException, ValueError):
        return False


def _opener() -> OpenerDirector:
    """Open addresses without a proxy, which would see the admin key."""
    from urllib.request import ProxyHandler, build_opener

    return build_opener(ProxyHandler({}))


class RunningService:
    """The service that has a folder open, asked with the admin key in the folder."""

    def __init__(self, folder: Path, address: str) -> None:
        from tacit.service.http.keys import ADMIN_FILE

        path = folder / ADMIN_FILE
        if not path.is_file():
            raise Refused(
                f"{path} is missing, and the service at {address} asks for an admin key: put it there, or stop the "
                "service"
            )
        self._address, self._key = address, path.read_text().strip()

    def call(self, method: str, path: str, body: object = None, seconds: float = _SECONDS) -> bytes | None:
        """Call the service and return the body of its answer, None for 404; other errors are raised with their text."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            asked = Request(self._address + path, data, headers, method=method)
            with _opener().open(asked, timeout=seconds) as answer:
                found: bytes = answer.read()
                return found
        except HTTPError as error:
            if error.code == 404:
                return None
            raise Refused(json.loads(error.read())["detail"]) from error
        except (OSError, HTTPException) as error:
            raise Refused(f"the service at {self._address} does not answer: {error}") from error
