"""G-optimal designs over finite sets of arms, with regularisation: which arms to sample, and how often.

Maximises log det V(pi), V(pi) = ridge I + sum_k pi_k x_k x_k', by exchanging weight between the arm of largest and the
sampled arm of smallest variance w_k = x_k' V^-1 x_k (vertex exchange, Boehning 1986, with exact line search). At the
optimum max_k w_k = sum_k pi_k w_k = d - ridge tr V^-1 <= d, the equivalence theorem of Kiefer and Wolfowitz (1960) with
a ridge; the returned value is max_k w_k, recomputed from the weights, so that it certifies itself.

N users have a set of arms each, and their designs are made in lockstep: each pass of the loop is one exchange of every
user whose certificate does not hold yet.  `limit_support` then finds a design of fewer arms with the same matrix, by
Caratheodory's theorem as an elimination.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from tacit.typing import BoolArray, FloatArray, IntArray

TOLERANCE: Final = 0.05
"""The exchange stops when max_k w_k <= (1 + TOLERANCE) sum_k pi_k w_k: at most 1.05 d, where 2 d is asked for."""

_RELATIVE_FLOOR: Final = 1e-9
_TINY: Final = 1e-300
_REFRESH: Final = 64
_MAX_EXCHANGES: Final = 4096
_TIE: Final = 1e-6
"""Relative difference of variances that counts as none.

An exchange leaves two arms with equal variances; which is larger is a matter of rounding, and is to decide nothing.
"""
_LOOK: Final = 8
"""Exchanges after which users whose certificate holds are taken out, however few they are."""


class Designs(NamedTuple):
    """Designs of N users, as `g_optimal_designs` makes them.

    Parameters
    ----------
    weights : ndarray, shape (N, K)
        Weight of each arm.
    largest : ndarray, shape (N,)
        Value of each design.
    """

    weights: FloatArray
    """How often each arm is sampled, shape (N, K); lines add up to 1."""
    largest: FloatArray
    """max_k ||x_k||^2 in the inverse of V(weights), shape (N,)."""


def g_optimal_designs(arms: FloatArray, ridge: float) -> Designs:
    """Make a G-optimal design for each of N sets of K arms.

    The ridge is raised to 1e-9 of the largest squared norm, so that repeated, collinear or zero arms give a design of
    the span they have, and the value refers to that ridge.  The value is at most 2 d (1.05 d as a rule), and at most
    d (d + 1) / 2 + 1 weights of a user are positive.  An arm of zeros gets no weight; a set of such arms has value 0
    and all weight on its first one, and a set with an arm that is not finite the value infinity.

    Parameters
    ----------
    arms : ndarray, shape (N, K, d)
        Feature vectors of the arms.
    ridge : float
        Not negative and finite; otherwise all values are infinity.

    Returns
    -------
    Designs
        Weights, shape (N, K), and values, shape (N,).

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.design import g_optimal_designs
    >>> designs = g_optimal_designs(np.array([[[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]]]), ridge=0.0)
    >>> designs.weights.round(3).tolist(), designs.largest.round(3).tolist()
    ([[0.5, 0.5, 0.0]], [2.0])
    """
    users, count, _ = arms.shape
    weights, largest = np.zeros((users, count)), np.full(users, np.inf)
    weights[:, 0] = 1.0
    if not 0.0 <= ridge < np.inf:
        return Designs(weights, largest)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is looked for here
        scale = np.vecdot(arms, arms).max(axis=1)
    largest[scale == 0.0] = 0.0
    sound = (scale > 0.0) & (scale < np.inf)
    if sound.all():
        return _exchanged(arms, np.maximum(ridge, _RELATIVE_FLOOR * scale))
    if sound.any():
        weights[sound], largest[sound] = _exchanged(arms[sound], np.maximum(ridge, _RELATIVE_FLOOR * scale[sound]))
    return Designs(weights, largest)


class _Working(NamedTuple):
    """State of the users whose certificate does not hold yet."""

    places: IntArray
    """Numbers of these users among the N, shape (M,)."""
    arms: FloatArray
    ridge: FloatArray
    weights: FloatArray
    inverse: FloatArray
    """Inverse of V(weights), shape (M, d, d)."""
    variances: FloatArray
    """w_k of every arm, shape (M, K)."""

    def only(self, kept: BoolArray) -> _Working:
        """The state of the users that ``kept`` marks."""
        return _Working._make(array[kept] for array in self)


def _exchanged(arms: FloatArray, ridge: FloatArray) -> Designs:
    """Exchange weight until every certificate holds."""
    weights, largest = _greedy_start(arms), np.empty(len(arms))
    left = _Working(np.arange(len(arms)), arms, ridge, weights.copy(), *_refreshed(arms, ridge, weights))
    for step in range(_MAX_EXCHANGES):
        top = left.variances.max(axis=1)
        holds = top <= (1.0 + TOLERANCE) * np.vecdot(left.weights, left.variances)
        found = np.count_nonzero(holds)
        if 2 * found >= len(holds) or (found and step % _LOOK == 0):
            left = _take_out(left, holds, weights, largest)
            if len(left.places) == 0:
                break
            continue
        _exchange(left, top, holds)
        if step % _REFRESH == _REFRESH - 1:
            left.inverse[:], left.variances[:] = _refreshed(left.arms, left.ridge, left.weights)
    weights[left.places] = left.weights
    many = limit_support(arms, weights)
    exact = np.union1d(left.places, many)
    if exact.size:
        largest[exact] = _refreshed(arms[exact], ridge[exact], weights[exact])[1].max(axis=1)
    return Designs(weights, largest)


def _greedy_start(arms: FloatArray) -> FloatArray:
    """Equal weight on at most d arms of each user, each far from the span of those before it (pivoted Gram-Schmidt).

    Kumar and Yildirim (2005) start the minimum-volume ellipsoid in the same way: few points, all directions.
    """
    users, count, dim = arms.shape
    residual, weights, lines = arms.copy(), np.zeros((users, count)), np.arange(users)
    first = np.zeros(users)
    for _ in range(min(count, dim)):
        squares = np.vecdot(residual, residual)
        best = squares.argmax(axis=1)
        longest = squares[lines, best]
        first = np.maximum(first, longest)
        far = longest > _RELATIVE_FLOOR * first
        weights[lines[far], best[far]] = 1.0
        pivot = residual[lines, best]
        share = (residual @ pivot[:, :, np.newaxis])[:, :, 0] / np.where(far, longest, np.inf)[:, np.newaxis]
        residual -= share[:, :, np.newaxis] * pivot[:, np.newaxis, :]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _refreshed(arms: FloatArray, ridge: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse and variances from the weights, free of the rounding that updates gather."""
    matrix = arms.transpose(0, 2, 1) @ (weights[:, :, np.newaxis] * arms)
    diagonal = np.arange(arms.shape[2])
    matrix[:, diagonal, diagonal] += ridge[:, np.newaxis]
    # Never singular: the ridge is at least 1e-9 of the largest squared norm, and rounding far below that.
    inverse: FloatArray = np.asarray(np.linalg.inv(matrix))
    return inverse, np.vecdot(arms @ inverse, arms)


def _take_out(left: _Working, holds: BoolArray, weights: FloatArray, largest: FloatArray) -> _Working:
    """Note the designs of users whose certificate holds for exact variances too; the users that are left."""
    ready = left.only(holds)
    inverse, variances = _refreshed(ready.arms, ready.ridge, ready.weights)
    top = variances.max(axis=1)
    sure = top <= (1.0 + TOLERANCE) * np.vecdot(ready.weights, variances)
    done = ready.places[sure]
    weights[done], largest[done] = ready.weights[sure], top[sure]
    left.inverse[holds], left.variances[holds] = inverse, variances
    kept = ~holds
    kept[holds] = ~sure
    return left.only(kept)


def _exchange(left: _Working, top: FloatArray, holds: BoolArray) -> None:
    """Move the weight that maximises the determinant from the sampled arm of smallest to that of ``top`` variance.

    det changes by (1 + m w_h)(1 - m w_l) + m^2 w_hl^2, a concave quadratic in the moved weight m.  Nothing is moved
    where the certificate holds.
    """
    _, arms, _, weights, inverse, variances = left
    lines = np.arange(len(top))
    high = (variances >= (1.0 - _TIE) * top[:, np.newaxis]).argmax(axis=1)
    sampled = np.where(weights > 0.0, variances, np.inf)
    low = (sampled <= (1.0 + _TIE) * sampled.min(axis=1, keepdims=True)).argmax(axis=1)
    ends = np.stack([arms[lines, high], arms[lines, low]], axis=1)
    images = ends @ inverse
    to, away = images[:, 0], images[:, 1]
    up, down, cross = variances[lines, high], variances[lines, low], np.vecdot(ends[:, 1], to)
    bend = 2.0 * (up * down - cross * cross)
    most = weights[lines, low]
    bends = bend > 0.0
    moved = np.where(bends, np.minimum(most, (up - down) / np.where(bends, bend, 1.0)), most)
    moved[holds] = 0.0
    weights[lines, high] += moved
    weights[lines, low] = np.maximum(weights[lines, low] - moved, 0.0)
    gain = moved / (1.0 + moved * up)
    away = away - (gain * cross)[:, np.newaxis] * to
    loss = moved / (1.0 - moved * (down - gain * cross * cross))
    turned = np.stack([to, away], axis=1)
    factors = np.stack([-gain, loss], axis=1)
    inverse += turned.transpose(0, 2, 1) @ (factors[:, :, np.newaxis] * turned)
    shares = arms @ turned.transpose(0, 2, 1)
    variances += (np.square(shares) @ factors[:, :, np.newaxis])[:, :, 0]


def limit_support(arms: FloatArray, weights: FloatArray) -> IntArray:
    """Bring the positive weights of each user to at most d (d + 1) / 2 + 1, keeping V(weights) and their sum.

    More points than that are dependent as vectors (x x', 1).  Moving along a dependency changes neither the matrix nor
    the sum, and stops when a weight reaches 0; one point is lost at a time.

    Parameters
    ----------
    arms : ndarray, shape (N, K, d)
        Feature vectors of the arms.
    weights : ndarray, shape (N, K)
        Weights of a design, whose lines add up to 1; changed in place.

    Returns
    -------
    ndarray of int
        Which of the N users had more positive weights.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.design import limit_support
    >>> arms = np.random.default_rng(0).normal(size=(1, 10, 2))
    >>> weights = np.full((1, 10), 0.1)
    >>> limit_support(arms, weights).tolist(), int(np.count_nonzero(weights))
    ([0], 4)
    """
    dim = arms.shape[2]
    limit = dim * (dim + 1) // 2 + 1
    changed = many = np.flatnonzero(np.count_nonzero(weights, axis=1) > limit)
    while many.size:
        used = (weights[many] == 0.0).argsort(axis=1, kind="stable")[:, : limit + 1]
        lines = many[:, np.newaxis]
        weights[lines, used] = _slid(weights[lines, used], _dependencies(arms[lines, used]))
        many = many[np.count_nonzero(weights[many], axis=1) > limit]
    weights[changed] /= weights[changed].sum(axis=1, keepdims=True)
    return changed


def _dependencies(arms: FloatArray) -> FloatArray:
    """Coefficients, not all 0, with which the vectors (x x', 1) of each user's arms add up to 0."""
    rows, columns = np.tril_indices(arms.shape[2])
    scale = np.square(arms).max(axis=(1, 2))
    products = arms[:, :, rows] * arms[:, :, columns] / np.maximum(scale, _TINY)[:, np.newaxis, np.newaxis]
    vectors = np.concatenate([products, np.ones((*arms.shape[:2], 1))], axis=2)
    # One vector more than they have numbers: the last right singular vector belongs to no singular value.
    return np.asarray(np.linalg.svd(vectors.transpose(0, 2, 1))[2][:, -1])


def _slid(weights: FloatArray, direction: FloatArray) -> FloatArray:
    """Move the weights along ``direction`` or against it, until a weight vanishes; of both ways the shorter one."""
    moves = direction != 0.0
    steps = np.where(moves, weights / np.where(moves, -direction, 1.0), np.inf)
    forward = np.where(steps > 0.0, steps, np.inf).min(axis=1)
    backward = np.where(steps < 0.0, -steps, np.inf).min(axis=1)
    length = np.where(forward <= backward, forward, -backward)
    slid = weights + length[:, np.newaxis] * direction
    lines = np.arange(len(slid))
    slid[lines, np.where(moves, slid, np.inf).argmin(axis=1)] = 0.0
    return np.asarray(np.maximum(slid, 0.0))
