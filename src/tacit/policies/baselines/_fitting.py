"""Maximum likelihood again and again on rows that a baseline keeps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tacit.glm.likelihood import Limits, Objective, Status, minimise
from tacit.glm.links import Link
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection, selected
from tacit.typing import Count, FloatArray

FIT_LIMITS = Limits(tolerance=1e-8, iterations=50)
MARK = -1
"""The slot of a memo behind the arm's features: the mark that the row will have, where rows have one."""


class FitConstants(NamedTuple):
    """How an estimate is fitted to all rows again and again (`refit_as_rows_grow`)."""

    link: Link
    ridge: float
    theta_bound: float
    """Radius of the ball that the estimate stays in."""
    growth: float
    """Fraction by which rows grow between fits."""


def refit_due(count: int, fitted: Count, growth: float) -> bool:
    """Whether rows have grown by the fraction ``growth``, at least one, since the last fit; records that one begins.

    A fit costs a pass over all rows, so a fixed fraction keeps the cost per round flat: 1 / growth passes over a row.
    """
    now, before = int(count), int(fitted[()])
    if now < before + max(1.0, growth * before):
        return False
    fitted[()] = now
    return True


def until_refit(state: Any, memos: FloatArray) -> int:
    """How many of N decisions come before the next fit: the ``until_change`` of a policy that chooses by fits alone."""
    held, fitted = int(state.rows.held[()]), int(state.fitted[()])
    return min(len(memos), max(1, math.ceil(fitted + max(1.0, state.fit.growth * fitted)) - held))


def refit(
    link: Link,
    rows: RowBuffer,
    mark: int,
    ridge: float,
    ball_radius: float,
    unfinished: Count,
    theta: FloatArray,
) -> None:
    """Maximum likelihood over the rows with this mark (or ``ALL_ROWS``), from the warm start ``theta``, in place.

    A fit that does not converge, for too many steps or a Hessian that is singular up to rounding, counts as
    ``unfinished``.  Its theta is no worse than the last one, and the next fit starts from it: the policy goes on.
    """
    objective = Objective(link, *selected(Selection(rows, mark)), ridge)
    found = minimise(objective, ball_radius, FIT_LIMITS, theta)
    theta[:] = found.theta
    if found.status is not Status.CONVERGED:
        unfinished[()] += 1


def refit_as_rows_grow(state: Any, fresh: bool, users: int) -> int:
    """Fit ``theta`` to all ``rows`` whenever they have grown enough: the ``advance`` of several baselines.

    The state holds rows at the last fit in ``fitted``, and how to fit in ``fit``, a ``FitConstants``.
    """
    fit = state.fit
    if refit_due(state.rows.held[()], state.fitted, fit.growth):
        refit(fit.link, state.rows, ALL_ROWS, fit.ridge, fit.theta_bound, state.unfinished, state.theta)
    return 0
