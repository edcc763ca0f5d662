"""Kernels that several baselines share: optimistic indices, rank-one updates, refits from a row buffer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._compile import allocating_kernel, generic_kernel, inlined_kernel, kernel
from tacit.glm.likelihood import CONVERGED, Limits, Objective, fit_kernel
from tacit.glm.links import LinkForm, mean
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection
from tacit.linalg.projection import project_ball, project_ball_metric
from tacit.linalg.solve import cholesky, dot, invert_cholesky, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.row_policy import grow_flag
from tacit.typing import Count, FloatArray

FIT_TOLERANCE = 1e-8
FIT_ITERATIONS = 50
MARK = -1
"""The slot of a memo behind the arm's features: the mask that the row will have, where rows have one."""


class FitConstants(NamedTuple):
    """How an estimate is fitted to all rows again and again (`refit_as_rows_grow`)."""

    link: LinkForm
    ridge: float
    theta_bound: float
    """Radius of the ball that the estimate stays in."""
    growth: float
    """Fraction by which rows grow between fits."""


@generic_kernel
def idle_tick(state: Any, fresh: bool) -> int:
    """The ``advance`` of a policy that does all of its work when rewards arrive."""
    return 0


@inlined_kernel
def optimistic_arm(contexts: FloatArray, theta: FloatArray, inverse: FloatArray, radius: float) -> int:
    """The arm of the largest ``<x, theta> + radius * ||x||_inverse``: the best over an ellipsoid around theta."""
    best, chosen = -math.inf, 0
    for k in range(contexts.shape[0]):
        spread = math.sqrt(max(0.0, quadratic_form(inverse, contexts[k])))
        index = dot(contexts[k], theta) + radius * spread
        if index > best:
            best, chosen = index, k
    return chosen


@kernel
def choose_optimistic(
    contexts: FloatArray, theta: FloatArray, inverse: FloatArray, radius: float, memo: FloatArray
) -> int:
    """The ``choose`` of a policy whose memo is the features of its optimistic arm."""
    arm = optimistic_arm(contexts, theta, inverse, radius)
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def optimistic_mean_arm(
    link: LinkForm, contexts: FloatArray, theta: FloatArray, inverse: FloatArray, radius: float
) -> int:
    """The arm of the largest ``mu(<x, theta>) + radius * ||x||_inverse``."""
    best, chosen = -math.inf, 0
    for k in range(contexts.shape[0]):
        spread = math.sqrt(max(0.0, quadratic_form(inverse, contexts[k])))
        index = mean(link, dot(contexts[k], theta)) + radius * spread
        if index > best:
            best, chosen = index, k
    return chosen


@allocating_kernel
def rule_out(
    contexts: FloatArray, theta: FloatArray, inverse: FloatArray, width: float, alive: npt.NDArray[np.bool_]
) -> None:
    """Clear ``alive`` for arms that cannot be best: whose upper bound lies below the lower bound of another one.

    Bounds are ``<x, theta> +- width * ||x||_inverse``; arms that are not alive have no say.
    """
    upper, floor = np.empty(contexts.shape[0]), -math.inf
    for k in range(contexts.shape[0]):
        if alive[k]:
            reach = width * math.sqrt(max(0.0, quadratic_form(inverse, contexts[k])))
            score = dot(contexts[k], theta)
            upper[k], floor = score + reach, max(floor, score - reach)
    for k in range(contexts.shape[0]):
        if alive[k] and upper[k] < floor:
            alive[k] = False


@allocating_kernel
def add_to_inverse(inverse: FloatArray, x: FloatArray, weight: float) -> float:
    """Turn the inverse of A into that of A + weight x x' (Sherman-Morrison); returns ``weight * ||x||^2_inverse``.

    That number is det(A + weight x x') / det(A) - 1: determinants grow without being computed.
    """
    dim = x.shape[0]
    image = np.empty(dim)
    for i in range(dim):
        image[i] = dot(inverse[i], x)
    gain = weight * dot(image, x)
    shrink = weight / (1.0 + gain)
    for i in range(dim):
        for j in range(dim):
            inverse[i, j] -= shrink * (image[i] * image[j])
    return gain


@kernel
def add_outer(matrix: FloatArray, x: FloatArray, weight: float) -> None:
    """Add ``weight * x x'``."""
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            matrix[i, j] += weight * (x[i] * x[j])


@kernel
def inverse_or_keep(matrix: FloatArray, inverse: FloatArray, unfinished: Count) -> None:
    """Write the inverse of ``matrix`` into ``inverse``; ``matrix`` is used up.

    A matrix with a positive ridge is positive definite, but rounding can hide a ridge that is some 1e16 times smaller
    than the largest eigenvalue.  The inverse from before then stays, and ``unfinished`` counts it.
    """
    if cholesky(matrix, matrix):
        invert_cholesky(matrix, inverse)
    else:
        unfinished[()] += 1


@kernel
def move_into_ball(theta: FloatArray, radius: float, metric: FloatArray) -> None:
    """Move ``theta`` to the nearest point of the ball in the norm of ``metric``, in place.

    Where rounding hides that ``metric`` is positive definite, to the nearest point in the Euclidean norm: whatever
    happens, ``theta`` lies in the ball afterwards.
    """
    if not project_ball_metric(theta, radius, metric):
        project_ball(theta, radius)


@inlined_kernel
def refit_due(count: int, fitted: Count, growth: float) -> bool:
    """Whether the rows have grown by the fraction ``growth`` (at least one) since the last fit; records that one
    begins.

    A fit costs a pass over all rows, so a fixed fraction keeps the cost per round flat: 1 / growth passes over a row.
    """
    before = fitted[()]
    if count < before + max(1.0, growth * before):
        return False
    fitted[()] = count
    return True


@inlined_kernel
def refit(
    link: LinkForm,
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
    objective = Objective(link, Selection(rows, mark), ridge)
    status, _, _ = fit_kernel(objective, ball_radius, Limits(FIT_TOLERANCE, FIT_ITERATIONS), theta)
    if status != CONVERGED:
        unfinished[()] += 1


@generic_kernel
def refit_as_rows_grow(state: Any, fresh: bool) -> int:
    """The ``advance`` of a policy that fits ``theta`` to all ``rows`` whenever they have grown enough.

    The state holds rows at the last fit in ``fitted``, and how to fit in ``fit``, a ``FitConstants``.
    """
    fit = state.fit
    if refit_due(state.rows.held[()], state.fitted, fit.growth):
        refit(fit.link, state.rows, ALL_ROWS, fit.ridge, fit.theta_bound, state.unfinished, state.theta)
    return grow_flag(state.rows)
