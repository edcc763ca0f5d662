"""Kernels that several baselines share: optimistic indices, rank-one updates, refits from a row buffer."""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import kernel
from tacit.glm.likelihood import fit_kernel
from tacit.glm.links import mean
from tacit.linalg.solve import dot, quadratic_form
from tacit.linalg.vectors import identity
from tacit.policies.rows import RowBuffer
from tacit.typing import FloatArray, IntArray

FIT_TOLERANCE = 1e-8
FIT_ITERATIONS = 50


@kernel
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
def optimistic_mean_arm(link: int, contexts: FloatArray, theta: FloatArray, inverse: FloatArray, radius: float) -> int:
    """The arm of the largest ``mu(<x, theta>) + radius * ||x||_inverse``."""
    best, chosen = -math.inf, 0
    for k in range(contexts.shape[0]):
        spread = math.sqrt(max(0.0, quadratic_form(inverse, contexts[k])))
        index = mean(link, dot(contexts[k], theta)) + radius * spread
        if index > best:
            best, chosen = index, k
    return chosen


@kernel
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
def refit_due(count: int, fitted: IntArray, growth: float) -> bool:
    """Whether the rows have grown by the fraction ``growth`` (at least one) since the last fit; records that one
    begins.

    A fit costs a pass over all rows, so a fixed fraction keeps the cost per round flat: 1 / growth passes over a row.
    """
    if count < fitted[0] + max(1.0, growth * fitted[0]):
        return False
    fitted[0] = count
    return True


@kernel
def refit(link: int, rows: RowBuffer, selected: int, ridge: float, ball_radius: float, theta: FloatArray) -> None:
    """Maximum likelihood over the rows whose mask is ``selected``, from the warm start ``theta``, in place."""
    dim = theta.shape[0]
    origin = np.zeros(dim)
    fit_kernel(
        link, rows.features, rows.rewards, rows.count[0], np.empty(0), rows.mask, selected, ridge, origin, ball_radius,
        origin, identity(dim), math.inf, FIT_TOLERANCE, FIT_ITERATIONS, theta,
    )  # fmt: skip
