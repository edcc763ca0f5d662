"""`tacit backup` and `tacit restore`: what is public of a store, in a file that may be copied."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.shared import Refused, check_writable, messages
from tacit.cli.stores import is_database, unserved

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Where = Annotated[str, typer.Argument(metavar="DIR|URL", help="Folder of the store, or URL of its database.")]


def backup(data: Where, file: File) -> None:
    """Write what is public of all policies of a store that is not being served: configuration, releases, ledger.

    A store itself must never be copied and started twice; a backup may, since it holds no rows.

    \b
    Example:
      tacit backup tacit-data monday.backup
    """
    from tacit.service.backup import back_up_store

    check_writable(file)
    with unserved(data, moved_too=True) as store:  # a copy too: a backup releases nothing again
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
    with unserved(data, new=True) as store:
        kept = restore_store(file, store)
    messages().print(
        f"{len(kept)} policies are in {'the database' if is_database(data) else data}: {', '.join(kept) or 'none'}"
    )
