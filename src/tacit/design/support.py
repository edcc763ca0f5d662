"""Fewer points, same design matrix: Caratheodory's theorem as an elimination."""

from __future__ import annotations

import numpy as np

from tacit.typing import FloatArray, IntArray

_TINY = 1e-300


def limit_support(arms: FloatArray, weights: FloatArray) -> IntArray:
    """Bring the positive weights of each user to at most d (d + 1) / 2 + 1, keeping V(weights) and their sum.

    ``arms`` has shape (N, K, d), ``weights`` (N, K); returns which of the N users had more.  More points than that are
    dependent as vectors (x x', 1).  Moving along a dependency changes neither the matrix nor the sum, and stops when a
    weight reaches 0; one point is lost at a time.
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
    """Move the weights along ``direction`` or against it, whichever makes a weight vanish sooner, until one does."""
    moves = direction != 0.0
    steps = np.where(moves, weights / np.where(moves, -direction, 1.0), np.inf)
    forward = np.where(steps > 0.0, steps, np.inf).min(axis=1)
    backward = np.where(steps < 0.0, -steps, np.inf).min(axis=1)
    length = np.where(forward <= backward, forward, -backward)
    slid = weights + length[:, np.newaxis] * direction
    lines = np.arange(len(slid))
    slid[lines, np.where(moves, slid, np.inf).argmin(axis=1)] = 0.0
    return np.asarray(np.maximum(slid, 0.0))
