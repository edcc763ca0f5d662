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
    from tacit.service.lives import lives_of

    if not file.is_file():
        raise Refused(f"there is no file {file}")
    with unserved(data, new=True) as store:
        kept = restore_store(
            file, store, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since
        )
    messages().print(
        f"{len(kept)} policies are in {'the database' if is_database(data) else data}: {', '.join(kept) or 'none'}"
    )
    for name, each in kept.items():
        if each.counts_users:
            messages().print(f"{name}: a person may lose {each.cost(lives_of(each.note))}.")
