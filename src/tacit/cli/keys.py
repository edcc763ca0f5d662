"""`tacit keys`: the keys of callers of the service.

A folder belongs to one process.  While it is served these commands ask the service, with the admin key that it has
written there; otherwise they open the store themselves, as they do with a database, whose processes notice at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import FriendlyGroup, Json, Refused, messages, show
from tacit.cli.stores import RunningService, opened_or_served

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


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called in lists.")],
    scopes: Annotated[
        str, typer.Option(metavar="SCOPE[,SCOPE...]", help="decide, reward, read, admin (which includes all).")
    ] = "decide,reward",
    namespace: Annotated[str, typer.Option(help="Event ids are unique for each policy and namespace.")] = "default",
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
    from tacit.service.http.keys import Key

    wanted: dict[str, Any] = {"name": name, "scopes": _listed(scopes), "namespace": namespace, "rate": rate}
    wanted["policies"] = None if policies is None else _listed(policies)
    Key(**wanted, created="")  # refuses what is not allowed before a service is asked
    with _keys(data, database) as keys:
        typer.echo(keys.add(wanted))
    messages().print("Keep it: it is shown this once.")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


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
    with opened_or_served(database or str(folder)) as found:
        yield _Served(found) if isinstance(found, RunningService) else _Stored(found)


class _Stored:
    """Keys in a store."""

    def __init__(self, store: Store) -> None:
        from tacit.service.http.keys import Keyring

        self._keyring = Keyring(store)

    def add(self, wanted: dict[str, Any]) -> str:
        """Make a key and return its text."""
        text, _ = self._keyring.add(**wanted)
        return text

    def all(self) -> list[dict[str, Any]]:
        """List all keys as rows."""
        from dataclasses import asdict

        return [asdict(key) for key in self._keyring.all()]

    def revoke(self, name: str) -> bool:
        """Remove a key; return whether there was one of this name."""
        return self._keyring.revoke(name)


class _Served:
    """Keys of a service that runs."""

    def __init__(self, service: RunningService) -> None:
        self._service = service

    def add(self, wanted: dict[str, Any]) -> str:
        """Make a key and return its text."""
        return str(json.loads(self._service.call("POST", "/v1/keys", wanted) or b"{}")["key"])

    def all(self) -> list[dict[str, Any]]:
        """List all keys as rows."""
        return list(json.loads(self._service.call("GET", "/v1/keys") or b"{}")["keys"])

    def revoke(self, name: str) -> bool:
        """Remove a key; return whether there was one of this name."""
        from urllib.parse import quote

        return self._service.call("DELETE", f"/v1/keys/{quote(name, safe='')}") is not None
