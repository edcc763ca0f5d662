"""What the privacy report says of a policy that cannot learn as it should; all of it follows from what is public."""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.typing import FloatArray

_MANY_NUMBERS: Final = 10_000
"""From here on a release takes a millisecond and more."""
_AT_THE_BOUND: Final = 0.999
"""Share of theta_bound from which an estimate counts as lying on it: projections are rounded."""


def bound_notices(estimate: FloatArray, theta_bound: float) -> tuple[str, ...]:
    """One when the released estimate is as long as it may be."""
    length = float(np.linalg.norm(estimate))
    if length < _AT_THE_BOUND * theta_bound:
        return ()
    return (
        f"the released estimate lies on theta_bound: it has length {length:.4g}, and {theta_bound:.4g} is admitted. "
        "After few decisions that is noise. If it stays so, the rewards ask for a longer parameter, and arms are told "
        "apart worse than they could be: make a new policy with a larger theta_bound, or, where most rewards are 0 (or "
        "most are not), state their public base_rate, which is most of that length.",
    )


def size_notices(released: int, dim: int, state_bytes: int) -> tuple[str, ...]:
    """One when every release holds many numbers, each with noise, for want of features that exclude each other."""
    if released < _MANY_NUMBERS:
        return ()
    return (
        f"with {dim} features that can all occur together each release holds {released:,} numbers, all of them with "
        f"noise; the state takes {state_bytes / 1e6:.1f} MB, and a release (one for each percent of decisions) as long "
        "as it takes to solve equations of that size. Features that exclude each other, such as values of a category "
        "or parameters per arm in a schema, cost less.",
    )


def horizon_notices(decisions: int, horizon: int | None, *, ended: bool) -> tuple[str, ...]:
    """One when more decisions were made than the horizon; ``ended`` says whether the last release has been made."""
    if horizon is None or decisions <= horizon:
        return ()
    told = f"{decisions} decisions were made, and the horizon is {horizon}: "
    if not ended:
        return (f"{told}the policy still learns; whatever depends on a horizon was planned for a shorter run.",)
    return (
        f"{told}the last release has been made. Decisions go on by the last estimate, as private as before; rewards "
        "are still taken, and teach nothing. Make a new policy with a larger horizon, or without one.",
    )
