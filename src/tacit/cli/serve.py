"""`tacit serve`: decisions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


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
