"""`tacit keys`: who may call the service.

A folder belongs to one process.  While it is served these commands ask the service, with the admin key that it has
written there; otherwise they open the store themselves, as they do with a database, whose processes notice at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.serve import opened
from tacit.cli.shared import FriendlyGroup, Json, Refused, messages, show

if TYPE_CHECKING:
    from tacit.service.store import Store

app = typer.Typer(
    cls=FriendlyGroup, help="Keys of callers: add, list, revoke.", no_args_is_help=True, rich_markup_mode=None
)
Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the store, and of the admin key.")]
Database = Annotated[
    str | None, typer.Option(metavar="URL", help="A PostgreSQL database, in place of a store in the folder.")
]
_DEFAULT = Path("tacit-data")
_SECONDS = 10.0


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called in lists.")],
    scopes: Annotated[
        str, typer.Option(metavar="SCOPE[,SCOPE...]", help="decide, reward, read, admin (which includes all).")
    ] = "decide,reward",
    namespace: Annotated[str, typer.Option(help="Event ids are unique in it; others do not see them.")] = "default",
    rate: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Requests per second.", show_default="key_rate")
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="It reaches these; * is a wildcard.", show_default="all"),
    ] = None,
    data: Data = _DEFAULT,
    database: Database = None,
) -> None:
    """Make a key and print it; it cannot be shown again.

    \b
    Examples:
      tacit keys add shop --scopes decide,reward --rate 100
      tacit keys add news --policies 'front-page,news-*'
      tacit keys add shop --database postgresql://tacit@db.example/tacit
    """
    from tacit.service.http.keys import checked_name, checked_policies, checked_rate, checked_scopes

    wanted: dict[str, Any] = {
        "name": checked_name("name", name),
        "scopes": checked_scopes(_listed(scopes)),
        "namespace": checked_name("namespace", namespace),
        "rate": checked_rate(rate),
        "policies": None if policies is None else checked_policies(_listed(policies)),
    }
    with _keys(data, database) as keys:
        typer.echo(keys.add(wanted))
    messages().print("Keep it: it is shown this once.")


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


@app.command("list")
def list_keys(data: Data = _DEFAULT, database: Database = None, json_file: Json = None) -> None:
    """List all keys, without their secret parts."""
    from tacit.experiments.tables import Table

    with _keys(data, database) as keys:
        rows = keys.all()
    columns = ("name", "scopes", "policies", "namespace", "created", "rate")
    show(Table("Keys", columns, tuple(_cells(row) for row in rows), labels=5), json_file, rows)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    policies = "all" if row["policies"] is None else ", ".join(row["policies"])
    rate = "any" if row["rate"] is None else f"{row['rate']:,g}/s"
    return row["name"], ", ".join(row["scopes"]), policies, row["namespace"], row["created"], rate


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")],
    data: Data = _DEFAULT,
    database: Database = None,
) -> None:
    """Forget a key: calls with it are refused from now on."""
    with _keys(data, database) as keys:
        if not keys.revoke(name):
            raise Refused(f"there is no key named {name!r}")
    messages().print(f"{name} is revoked")


@contextmanager
def _keys(folder: Path, database: str | None) -> Iterator[_Stored | _Served]:
    """Open the keys of a store, or ask the service that has it open."""
    from tacit.errors import StoreInUse

    with ExitStack() as ends:
        try:
            found: _Stored | _Served = _Stored(ends.enter_context(opened(database or str(folder))))
        except StoreInUse as error:
            address = _address(folder)
            if address is None:
                raise Refused(f"{error}; nor is there a service that answers and could be asked") from error
            found = _Served(folder, address)
        yield found


def _address(folder: Path) -> str | None:
    """Find the service that was started with this folder, if it answers."""
    from tacit.service.http.options import ADDRESS_FILE

    path = folder / ADDRESS_FILE
    address = path.read_text().strip() if path.is_file() else ""
    return address if address and _answers(address) else None


def _answers(address: str) -> bool:
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        with urlopen(f"{address}/healthz", timeout=_SECONDS):
            return True
    except (URLError, TimeoutError, ValueError):
        return False


class _Stored:
    """Keys in a store."""

    def __init__(self, store: Store) -> None:
        from tacit.service.http.keys import Keyring

        self._keyring = Keyring(store)

    def add(self, wanted: dict[str, Any]) -> str:
        """Make a key and return its text."""
        return self._keyring.add(**wanted)[0]

    def all(self) -> list[dict[str, Any]]:
        """List all keys as rows."""
        from dataclasses import asdict

        return [asdict(key) for key in self._keyring.all()]

    def revoke(self, name: str) -> bool:
        """Remove a key; return whether there was one of this name."""
        return self._keyring.revoke(name)


class _Served:
    """Keys of a service that runs."""

    def __init__(self, folder: Path, address: str) -> None:
        from tacit.service.http.keys import ADMIN_FILE

        path = folder / ADMIN_FILE
        if not path.is_file():
            raise Refused(
                f"{path} is missing, and the service at {address} asks for an admin key: put it there, or stop the "
                "service"
            )
        self._address, self._key = address, path.read_text().strip()

    def add(self, wanted: dict[str, Any]) -> str:
        """Make a key and return its text."""
        return str(self._call("POST", "/v1/keys", wanted)["key"])

    def all(self) -> list[dict[str, Any]]:
        """List all keys as rows."""
        return list(self._call("GET", "/v1/keys")["keys"])

    def revoke(self, name: str) -> bool:
        """Remove a key; return whether there was one of this name."""
        from urllib.parse import quote

        return self._call("DELETE", f"/v1/keys/{quote(name, safe='')}") is not None

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """Call the service and return its answer, None for 404; another error is raised with its message."""
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self._address + path, data, headers, method=method), timeout=_SECONDS) as answer:
                return json.loads(answer.read() or b"{}")
        except HTTPError as error:
            if error.code == 404:
                return None
            raise Refused(json.loads(error.read())["detail"]) from error
        except (URLError, TimeoutError) as error:
            raise Refused(f"the service at {self._address} does not answer: {error}") from error
