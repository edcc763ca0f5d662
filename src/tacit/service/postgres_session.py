"""A connection to the database of a store: nothing is answered before it was found durable, original and sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tacit.errors import InvalidInput, StoreError, StoreFailed, StoreInUse, StoreMoved, StoreTooNew
from tacit.service.postgres_tables import FORMAT, FROM_FORMAT_1, SCHEMA, TABLES
from tacit.service.seals import damaged

OLDEST_SERVER: Final = 140_000
PAUSE: Final = 2.0
"""Seconds that a process may pause in its turn before the server ends its session for others to go on."""
_OPENING: Final = 0x54616369
"""Advisory lock of those who open a store: one of them makes the tables ("Taci")."""
_SERVED_BEFORE: Final = 0x54616370
"""Advisory lock that processes before 0.3 share as long as they serve a database."""
_CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A server that is gone is noticed within about ten seconds; a URL may say otherwise."""
_SESSION: Final = {
    "search_path": SCHEMA,
    "default_transaction_isolation": "read committed",  # an update that has waited looks at its condition anew
    "default_transaction_read_only": "off",
    "idle_in_transaction_session_timeout": f"{PAUSE:g}s",
    "lock_timeout": "20s",
    "statement_timeout": "0",
    "tcp_keepalives_idle": "3",  # the server's side: a process whose machine is gone lets go of its lock
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "log_parameter_max_length_on_error": "0",  # raw data stay out of the server's log
    "client_min_messages": "warning",
    "jit": "off",
} | dict.fromkeys(
    # tables are new, and nobody has counted what is in them: everything is looked up by index, one row at a time
    ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material"),
    "off",
)
_NEEDED: Final = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
    "standard_conforming_strings": ("on",),
    "server_encoding": ("UTF8",),
    "transaction_read_only": ("off",),
}
"""Settings without which an answer could be lost, or names could not be stored, and the values that they may have."""
_IDENTITY: Final = (
    "SELECT 'system ' || system_identifier || ', database ' || oid || ', timeline '"
    " || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
    " FROM pg_control_system(), pg_database WHERE datname = current_database()"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def place(url: str) -> str:
    """Which database a URL means, without its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidInput("the database must be given as postgresql://USER@HOST:PORT/NAME") from None
    server = parts.get("host") or parts.get("hostaddr") or "this machine"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"the database {parts.get('dbname') or parts.get('user') or 'postgres'} on {server}{port}"


def connect(url: str) -> Connection:
    """A connection with the settings of a store; refused where the server could lose what it has acknowledged."""
    where = place(url)
    given = _CONNECTION | conninfo_to_dict(url) | {"application_name": "tacit"}
    try:
        connection = psycopg.connect(make_conninfo("", **given), autocommit=True)
    except psycopg.Error as error:
        raise StoreFailed(f"{where} cannot be reached: {str(error).strip()}") from error
    try:
        _check_server(connection, where)
        for name, value in _SESSION.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        _check_settings(connection, where)
    except psycopg.Error as error:
        connection.close()
        raise StoreFailed(f"{where} cannot be used: {str(error).strip()}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_server(connection: Connection, where: str) -> None:
    """Refuse old servers, and copies that only follow another one."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise StoreError(
            f"{where} runs PostgreSQL {version // 10_000}: a store needs {OLDEST_SERVER // 10_000} or newer"
        )
    if _value(connection, "SELECT pg_is_in_recovery()"):
        raise StoreError(f"{where} is a standby, which cannot be written to: use the primary server")


def _check_settings(connection: Connection, where: str) -> None:
    """Refuse a server that does not keep what it acknowledges."""
    if _value(connection, "SHOW synchronous_commit") not in _NEEDED["synchronous_commit"]:
        connection.execute("SET synchronous_commit = on")  # a session may ask for more than its server
    for name, allowed in _NEEDED.items():
        found = _value(connection, f"SHOW {name}")
        if found not in allowed:
            raise StoreError(
                f"{where} has {name} = {found}, and a store needs {' or '.join(allowed)}: without that, what was "
                "acknowledged could be lost or changed"
            )


def _value(connection: Connection, query: str, values: Sequence[Any] = ()) -> Any:
    found = connection.execute(query, values).fetchone()
    return None if found is None else found[0]


def open_tables(connection: Connection, where: str, *, make: bool = True, moved_too: bool) -> None:
    """Make the tables in a database that has none, or refuse it; those of a later version or of a copy are refused."""
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_OPENING,))
            if not _value(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)):
                if not make:
                    raise StoreError(f"there is no store in {where}; tacit serve --database URL makes one")
                _build(connection)
            _check_tables(connection, where, moved_too)
            _migrate(connection, where)
    except psycopg.Error as error:
        raise StoreFailed(f"the store in {where} cannot be made or read: {str(error).strip()}") from error


def _build(connection: Connection) -> None:
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    for statement in TABLES:
        connection.execute(statement)
    meta = {"format": str(FORMAT), "identity": identity(connection)}
    connection.cursor().executemany("INSERT INTO meta VALUES (%s, %s)", list(meta.items()))


def identity(connection: Connection) -> str:
    """What tells a store from its copies: the cluster, the database in it, and how often a copy of it was promoted.

    A copy of all files of a server has the same identity and cannot be told from the original.
    """
    return str(_value(connection, _IDENTITY))


def _migrate(connection: Connection, where: str) -> None:
    """Bring tables of an earlier version to this one's format, while no process of that version serves them."""
    if _value(connection, "SELECT value FROM meta WHERE name = 'format'") == str(FORMAT):
        return
    if not _value(connection, "SELECT pg_try_advisory_xact_lock(%s)", (_SERVED_BEFORE,)):
        raise StoreInUse(
            f"a process of an earlier version of Tacit serves {where}: end it, and all others that do, and start again"
        )
    for statement in FROM_FORMAT_1:
        connection.execute(statement)
    connection.execute("UPDATE meta SET value = %s WHERE name = 'format'", (str(FORMAT),))


def _check_tables(connection: Connection, where: str, moved_too: bool) -> None:
    if _value(connection, "SELECT to_regclass('meta')") is None:
        damaged(f"the schema {SCHEMA} in {where} is no store of Tacit")
    meta: dict[str, str] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if not {"format", "identity"} <= meta.keys():
        damaged(f"the table meta in {where} is incomplete")
    if int(meta["format"]) > FORMAT:
        raise StoreTooNew(
            f"the store in {where} has format {meta['format']}, and this version of Tacit knows {FORMAT}: use the "
            "version that wrote it, or a later one"
        )
    found = identity(connection)
    if meta["identity"] != found and not moved_too:
        raise StoreMoved(
            f"the store in {where} was made as {meta['identity']} and is now {found}: it is a copy, was restored from "
            "one, or belongs to a standby that took over, and the original may still go on; both would release the "
            "same rows. Start the original, or take the public part of this one to a new database: `tacit backup`, "
            "then `tacit restore`"
        )
