"""A connection to the database of a store: nothing is answered before it was found durable, original and sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tacit.errors import InvalidInput, StoreError, StoreFailed, StoreInUse
from tacit.service.packing import damaged
from tacit.service.store import check_format, check_identity

SCHEMA: Final = "tacit"
FORMAT: Final = 2
TABLES: Final = (
    "CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL)",
    # the order of bytes, in a database of any language
    'CREATE TABLE journals (id bigserial PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, config bytea NOT NULL)',
    # what changes with every group, with room for new versions beside the old ones
    "CREATE TABLE heads (journal bigint PRIMARY KEY REFERENCES journals, seq bigint NOT NULL,"
    " snapshot_seq bigint NOT NULL, generation bigint NOT NULL, note bytea NOT NULL,"
    " version integer NOT NULL DEFAULT 1) WITH (fillfactor = 20)",
    'CREATE TABLE settings (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)',
)

FROM_FORMAT_1: Final = (
    "ALTER TABLE heads DROP COLUMN epoch, ADD COLUMN version integer NOT NULL DEFAULT 1",
    "DROP TABLE IF EXISTS members",
)
"""Before 0.3 a journal counted its owners, by epochs, and processes said in a table that they were there."""
OLDEST_SERVER: Final = 14
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
    "lock_timeout": "0",  # whoever has a lock ends, by the timer above or by those below
    "statement_timeout": "0",
    "tcp_keepalives_idle": "3",  # the server's side: a process whose machine is gone lets go of its lock
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "log_parameter_max_length_on_error": "0",  # raw data stay out of the server's log
    "client_min_messages": "warning",
} | dict.fromkeys(
    # tables are new, and their rows were never counted: everything is looked up by index, one row at a time
    ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit"),
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


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise errors of the server as ``StoreFailed``."""
    try:
        yield
    except psycopg.Error as error:
        raise StoreFailed(f"{what}: {str(error).strip()}") from error


def connect(url: str) -> Connection:
    """A connection with the settings of a store; refused where the server could lose what it has acknowledged."""
    where = place(url)
    given = _CONNECTION | conninfo_to_dict(url) | {"application_name": "tacit"}
    with _explained(f"{where} cannot be reached"):
        connection: Connection = psycopg.connect(make_conninfo("", **given), autocommit=True)
    try:
        with _explained(f"{where} cannot be used"):
            _check_server(connection, where)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_server(connection: Connection, where: str) -> None:
    """Refuse old servers, copies that only follow another one, and servers that do not keep what they acknowledge."""
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise StoreError(f"{where} runs PostgreSQL {version}: a store needs {OLDEST_SERVER} or newer")
    if _value(connection, "SELECT pg_is_in_recovery()"):
        raise StoreError(f"{where} is a standby, which cannot be written to: use the primary server")
    for name, value in _SESSION.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    if _value(connection, "SHOW synchronous_commit") not in _NEEDED["synchronous_commit"]:
        connection.execute("SET synchronous_commit = on")  # a session may ask for more than its server
    for name, allowed in _NEEDED.items():
        if (found := _value(connection, f"SHOW {name}")) not in allowed:
            raise StoreError(
                f"{where} has {name} = {found}, and a store needs {' or '.join(allowed)}: without that, what was "
                "acknowledged could be lost or changed"
            )


def _value(connection: Connection, query: str, values: Sequence[Any] = ()) -> Any:
    """The first value that a query finds."""
    return connection.execute(query, values).fetchall()[0][0]


def identity(connection: Connection) -> str:
    """What tells a store from its copies: the cluster, the database in it, and how often a copy of it was promoted.

    A copy of all files of a server has the same identity and cannot be told from the original.
    """
    return str(_value(connection, _IDENTITY))


def open_tables(connection: Connection, where: str, *, make: bool = True, moved_too: bool) -> None:
    """Make the tables in a database that has none, or refuse it; those of a later version or of a copy are refused."""
    with _explained(f"the store in {where} cannot be made or read"), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_OPENING,))
        found = identity(connection)
        if not _value(connection, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (SCHEMA,)):
            if not make:
                raise StoreError(f"there is no store in {where}; tacit serve --database URL makes one")
            for statement in (f"CREATE SCHEMA {SCHEMA}", *TABLES):
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('format', %s), ('identity', %s)", (str(FORMAT), found))
        _check_tables(connection, where, None if moved_too else found)


def _check_tables(connection: Connection, where: str, expected: str | None) -> None:
    """Refuse tables of another kind, of a later version or (unless ``expected`` is None) of a copy; migrate others."""
    if _value(connection, "SELECT to_regclass('meta')") is None:
        damaged(f"the schema {SCHEMA} in {where} is no store of Tacit")
    meta: dict[str, str] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if not {"format", "identity"} <= meta.keys():
        damaged(f"the table meta in {where} is incomplete")
    store = f"the store in {where}"
    check_format(store, int(meta["format"]), FORMAT)
    if expected is not None:
        why = "was restored from one, or belongs to a standby that took over"
        check_identity(store, meta["identity"], expected, why, "", "database")
    if int(meta["format"]) < FORMAT:
        _migrate(connection, where)


def _migrate(connection: Connection, where: str) -> None:
    """Bring tables of an earlier version to this one's format, while no process of that version serves them."""
    if not _value(connection, "SELECT pg_try_advisory_xact_lock(%s)", (_SERVED_BEFORE,)):
        raise StoreInUse(
            f"a process of an earlier version of Tacit serves {where}: end it, and all others that do, and start again"
        )
    for statement in FROM_FORMAT_1:
        connection.execute(statement)
    connection.execute("UPDATE meta SET value = %s WHERE name = 'format'", (str(FORMAT),))
