"""What several baselines share: configuration, fits to the rows that they keep, design matrices and optimism.

A design matrix is A = ridge I + sum w x x', kept as its inverse.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from tacit._validate import nonnegative, positive, probability
from tacit.glm.likelihood import FitStatus, Limits, Objective, minimise
from tacit.glm.links import Link
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection, selected
from tacit.policies.admission import remember_rows
from tacit.policies.config import Config, configuration, option
from tacit.typing import BoolArray, Count, FloatArray, IntArray

FIT_LIMITS = Limits(tolerance=1e-8, iterations=50)
MARK = -1
"""Position in a memo, behind the arm's features, of the mark that the row will have, where rows have one."""


def scale_option(about: str, *, default: float = 1.0) -> Any:
    """Make the field ``scale``; ``about`` says which width it multiplies, and where the default comes from."""
    return option(about, default=default, check=nonnegative)


@configuration
class ConfidenceConfig(Config):
    """Configuration of a baseline with a confidence set."""

    failure_probability: float = option(
        "Probability with which the confidence set may miss the true parameter at some time, delta in the papers.",
        default=0.02,
        check=probability,
    )


@configuration
class DimRidgeConfig(ConfidenceConfig):
    """Configuration of a baseline with a confidence set, whose ridge is the dimension unless it is stated."""

    ridge: float | None = option(
        "Ridge of the design matrix and of the estimate; d by default, as in the code behind the published figures.",
        default=None,
        check=positive,
    )

    @property
    def ridge_or_dim(self) -> float:
        """The ridge, d by default."""
        return float(self.dim) if self.ridge is None else self.ridge


@configuration
class RefittedConfig(ConfidenceConfig):
    """Configuration of a baseline with a confidence set, whose estimate is fitted to all rows again and again."""

    growth: float = option(
        "Fraction by which rows grow between fits. At 0.01 the estimate is fitted anew after every row up to 100, then "
        "whenever the rows grew by 1%, which moves it by far less than its confidence width and keeps the cost per "
        "round flat.",
        default=0.01,
        check=positive,
    )


class FitConstants(NamedTuple):
    """How `refit_as_rows_grow` fits an estimate."""

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
    due = math.ceil(fitted + max(1.0, float(state.fit.growth) * fitted))
    return min(len(memos), max(1, due - held))


def refit(
    link: Link,
    rows: RowBuffer,
    mark: int,
    ridge: float,
    ball_radius: float,
    unfinished: Count,
    theta: FloatArray,
) -> None:
    """Maximise the likelihood of the rows with this mark (or ``ALL_ROWS``), from ``theta`` on and in place.

    A fit that does not converge, for too many steps or a Hessian that is singular up to rounding, counts as
    ``unfinished``.  Its theta is no worse than the last one, and the next fit starts from it: the policy goes on.
    """
    objective = Objective(link, *selected(Selection(rows, mark)), ridge)
    found = minimise(objective, ball_radius, FIT_LIMITS, theta)
    theta[:] = found.theta
    if found.status is not FitStatus.CONVERGED:
        unfinished[()] += 1


def refit_as_rows_grow(state: Any, fresh: bool, users: int) -> int:
    """Fit ``theta`` to all ``rows`` whenever they have grown enough: the ``advance`` of several baselines.

    The state holds rows at the last fit in ``fitted``, and how to fit in ``fit``, a ``FitConstants``.
    """
    fit = state.fit
    if refit_due(state.rows.held[()], state.fitted, fit.growth):
        refit(fit.link, state.rows, ALL_ROWS, fit.ridge, fit.theta_bound, state.unfinished, state.theta)
    return 0


def add_outer(matrix: FloatArray, x: FloatArray, weight: float) -> None:
    """Add ``weight * x x'`` in place; a symmetric matrix stays so to the bit, which BLAS does not promise."""
    row = x.reshape(1, -1)
    outer = row.T.dot(row)  # half the time of ``x[:, np.newaxis] * x``, with the same numbers
    outer *= weight
    matrix += outer


def add_to_inverse(inverse: FloatArray, x: FloatArray, weight: float) -> float:
    """Turn the inverse of A into that of A + weight x x' in place (Sherman and Morrison).

    Returns ``weight * ||x||^2_inverse``, which is det(A + weight x x') / det(A) - 1: determinants grow without being
    computed.
    """
    image = inverse.dot(x)
    gain = weight * float(image.dot(x))
    add_outer(inverse, image, -weight / (1.0 + gain))
    return gain


def inverse_or_keep(matrix: FloatArray, inverse: FloatArray, unfinished: Count) -> None:
    """Write the inverse of ``matrix`` into ``inverse``.

    A matrix with a positive ridge is positive definite, but rounding can hide a ridge that is some 1e16 times smaller
    than the largest eigenvalue.  The inverse from before then stays, and ``unfinished`` counts it.
    """
    factor, failed = dpotrf(matrix, lower=1)
    rounding = np.finfo(np.float64).eps * float(matrix.trace())
    if failed or not float(factor.diagonal().min()) ** 2 > rounding:
        unfinished[()] += 1
    else:
        half = np.tril(dpotri(factor, lower=1)[0])
        inverse[:] = half + np.tril(half, -1).T


def squared_spreads(contexts: FloatArray, inverse: FloatArray) -> FloatArray:
    """``||x||^2_inverse`` of every arm, shape (N, K)."""
    users, arms, dim = contexts.shape
    return _row_spreads(contexts.reshape(-1, dim), inverse).reshape(users, arms)


def _row_spreads(rows: FloatArray, inverse: FloatArray) -> FloatArray:
    """``||x||^2_inverse`` of each of M rows; rounding may not turn it negative."""
    squares: FloatArray = np.vecdot(rows.dot(inverse), rows)
    return np.maximum(squares, 0.0, out=squares)


def scores(contexts: FloatArray, theta: FloatArray) -> FloatArray:
    """``<x, theta>`` of every arm, shape (N, K)."""
    users, arms, dim = contexts.shape
    found: FloatArray = contexts.reshape(-1, dim).dot(theta)
    return found.reshape(users, arms)


def optimistic_scores(contexts: FloatArray, theta: FloatArray, inverse: FloatArray, width: float) -> FloatArray:
    """``<x, theta> + width * ||x||_inverse`` of every arm, shape (N, K): the best over an ellipsoid around theta."""
    users, arms, dim = contexts.shape
    rows = contexts.reshape(-1, dim)
    index = np.sqrt(_row_spreads(rows, inverse))
    index *= width
    index += rows.dot(theta)
    return index.reshape(users, arms)


def choose_optimistic(
    contexts: FloatArray, theta: FloatArray, inverse: FloatArray, width: float, memos: FloatArray
) -> IntArray:
    """Choose the arm of the largest `optimistic_scores` for each of N users; memos are the features of their arms."""
    arms: IntArray = optimistic_scores(contexts, theta, inverse, width).argmax(axis=1)
    remember_rows(contexts, arms, memos)
    return arms


def ruled_out(score: FloatArray, reach: FloatArray, out: BoolArray | None = None) -> BoolArray:
    """Which arms cannot be best: those whose upper bound lies below the lower bound of another arm of the user.

    Bounds are ``score +- reach``, all of shape (N, K).  Arms that were ``out`` before stay so, and have no say.
    """
    lower, upper = score - reach, score + reach
    if out is not None:
        lower[out] = upper[out] = -np.inf
    below: BoolArray = upper < lower.max(axis=1, keepdims=True)
    return below if out is None else below | out
