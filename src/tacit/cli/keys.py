"""`tacit keys`: who may call the service.

A store belongs to one process.  While it is served these commands ask the service, with the admin key that it has
written beside its store; otherwise they open the store themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.backups import opened
from tacit.cli.shared import FriendlyGroup, Json, Refused, messages, show, write_json

app = typer.Typer(
    cls=FriendlyGroup, help="Keys of callers: add, list, revoke.", no_args_is_help=True, rich_markup_mode=None
)
Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the store.")]
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
    data: Data = _DEFAULT,
) -> None:
    """Make a key and print it; nobody can show it again.

    \b
    Example:
      tacit keys add shop --scopes decide,reward --rate 100
    """
    from tacit.service.http.keys import checked_name, checked_rate, checked_scopes

    wanted: dict[str, Any] = {
        "name": checked_name("name", name),
        "scopes": checked_scopes([scope.strip() for scope in scopes.split(",") if scope.strip()]),
        "namespace": checked_name("namespace", namespace),
        "rate": checked_rate(rate),
    }
    typer.echo(_keys(data).add(wanted))
    messages().print("Keep it: it is shown this once.")


@app.command("list")
def list_keys(data: Data = _DEFAULT, json_file: Json = None) -> None:
    """List all keys, without their secret parts."""
    from tacit.experiments.tables import Table

    rows = _keys(data).all()
    cells = [
        (row["name"], ", ".join(row["scopes"]), row["namespace"], row["created"], _rate(row["rate"])) for row in rows
    ]
    show(Table("Keys", ("name", "scopes", "namespace", "created", "rate"), tuple(cells), labels=4), json_file)
    write_json(rows, json_file)


def _rate(rate: float | None) -> str:
    return "any" if rate is None else f"{rate:,g}/s"


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")], data: Data = _DEFAULT) -> None:
    """Forget a key: whoever holds it is refused from now on."""
    if not _keys(data).revoke(name):
        raise Refused(f"there is no key named {name!r}")
    messages().print(f"{name} is revoked")


def _keys(folder: Path) -> _Stored | _Served:
    """The keys of a store that nobody has open, or of the service that has."""
    from tacit.errors import StoreInUse
    from tacit.service.http.options import ADDRESS_FILE

    try:
        return _Stored(folder)
    except StoreInUse as error:
        address = folder / ADDRESS_FILE
        if not address.is_file():
            raise Refused(f"{error}; it is no service that could be asked") from error
        return _Served(folder, address.read_text().strip())


class _Stored:
    """Keys in a store."""

    def __init__(self, folder: Path) -> None:
        from tacit.service.http.keys import Keyring

        self._store = opened(folder)
        self._keyring = Keyring(self._store)

    def add(self, wanted: dict[str, Any]) -> str:
        """The text of a new key."""
        try:
            return self._keyring.add(**wanted)[0]
        finally:
            self._store.close()

    def all(self) -> list[dict[str, Any]]:
        """All keys as rows."""
        from dataclasses import asdict

        self._store.close()
        return [asdict(key) for key in self._keyring.all()]

    def revoke(self, name: str) -> bool:
        """Whether there was such a key."""
        try:
            return self._keyring.revoke(name)
        finally:
            self._store.close()


class _Served:
    """Keys of a service that runs."""

    def __init__(self, folder: Path, address: str) -> None:
        from tacit.service.http.keys import ADMIN_FILE

        path = folder / ADMIN_FILE
        if not path.is_file():
            raise Refused(f"{path} is missing, and the service at {address} asks for an admin key: stop it first")
        self._address, self._key = address, path.read_text().strip()

    def add(self, wanted: dict[str, Any]) -> str:
        """The text of a new key."""
        return str(self._call("POST", "/v1/keys", wanted)["key"])

    def all(self) -> list[dict[str, Any]]:
        """All keys as rows."""
        return list(self._call("GET", "/v1/keys")["keys"])

    def revoke(self, name: str) -> bool:
        """Whether there was such a key."""
        from urllib.parse import quote

        return self._call("DELETE", f"/v1/keys/{quote(name, safe='')}") is not None

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """What the service answers, None for 404; anything else than success is refused with its words."""
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
