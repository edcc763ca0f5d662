"""Regularised design matrices A = ridge I + sum w x x', kept as inverses: updates, confidence bounds, optimism."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from tacit.policies.admission import chosen_rows, into_unit_ball
from tacit.typing import BoolArray, Count, FloatArray, IntArray


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
    remember_arms(contexts, arms, memos)
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


def remember_arms(contexts: FloatArray, arms: IntArray, memos: FloatArray) -> None:
    """Write the features of each user's arm to the front of its memo, scaled into the unit ball."""
    memos[:, : contexts.shape[2]] = into_unit_ball(chosen_rows(contexts, arms))
