"""`tacit warm`: compiled kernels before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.shared import Jobs, Refused, chosen_policies, messages

if TYPE_CHECKING:
    from tacit.experiments.spec import Experiment


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

    chosen = [_experiment(name) for name in chosen_policies(policies, "--policies")]
    left = compiling.missing(chosen)
    if left and not can_write():
        raise Refused(f"cannot write {cache_root() or 'a cache: there is no home'}; name a folder with TACIT_CACHE")
    progress.compile_missing(left, jobs)
    messages().print(f"{len(chosen)} policies are compiled, {len(left)} of them now. Folder: {cache_root()}")


def _experiment(name: str) -> Experiment:
    """Any setting of the policy: its compiled kernels serve all dimensions, arms, links and budgets."""
    from tacit.experiments.spec import Experiment, for_each_epsilon
    from tacit.policies.registry import policy_class

    link = next(iter(policy_class(name).links))
    base = Experiment(policy=name, link=link, dim=3, arms=5, horizon=100, theta_norm=2.0, delta=1e-5)
    return for_each_epsilon(base, [4.0])[0]
