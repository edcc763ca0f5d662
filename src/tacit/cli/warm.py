"""`tacit warm`: compiled kernels before they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.shared import Jobs, Refused, chosen_policies, messages


def warm(
    *,
    policies: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="all")
    ] = None,
    jobs: Jobs,
) -> None:
    """Compile kernels into the cache, for images and for machines that must not compile later.

    TACIT_CACHE names the folder; it may be read-only afterwards.

    \b
    Examples:
      tacit warm --policies stream-glm
      TACIT_CACHE=/opt/tacit-kernels tacit warm
    """
    from tacit._compile.places import cache_root, can_write
    from tacit.cli import progress
    from tacit.experiments import compiling

    chosen = [compiling.example(name) for name in chosen_policies(policies, "--policies")]
    left = compiling.missing([*chosen, *map(compiling.with_features, chosen)])
    if left and not can_write():
        raise Refused(f"cannot write {cache_root() or 'a cache: there is no home'}; name a folder with TACIT_CACHE")
    progress.compile_missing(left, jobs)
    now = len({experiment.policy for experiment in left})
    messages().print(f"{len(chosen)} policies are compiled, {now} of them now. Folder: {cache_root()}")
