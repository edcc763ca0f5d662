"""Projections on balls and ellipsoids, in the Euclidean norm or in that of a positive definite metric.

The projection in the metric A minimises ``(theta - theta_0)' A (theta - theta_0)`` over the set: with A the
curvature of a loss it is the constrained Newton step, with A the identity the Euclidean projection.  A single
set is handled by its secular equation on one eigendecomposition (More and Sorensen 1983, section 3: Newton's
method on 1/norm converges monotonically), two sets by their multipliers: no alternation, nothing to tune.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import allocating_kernel, as_entry, inlined_kernel, kernel
from tacit.errors import InvalidInput
from tacit.linalg.eigen import symmetric_eigen
from tacit.linalg.solve import cholesky, solve_cholesky, solve_lower, solve_upper
from tacit.linalg.vectors import copy_into, identity, norm, trace
from tacit.typing import FloatArray

_SECULAR_ITERATIONS = 200
_MULTIPLIER_ITERATIONS = 100
_ROUNDING = 1e-13


class Ellipsoid(NamedTuple):
    """The set {||theta - center||_matrix <= radius}; an infinite radius is all of space.

    ``matrix`` is positive semidefinite: directions that it does not see are unbounded.
    """

    center: FloatArray
    matrix: FloatArray
    radius: float


class Region(NamedTuple):
    """Where the ball of this radius around 0 and the ellipsoid meet; an infinite radius drops its set."""

    ball_radius: float
    ellipsoid: Ellipsoid


def make_ellipsoid(center: FloatArray, matrix: FloatArray, radius: float) -> Ellipsoid:
    """An ellipsoid, checked, in the one memory layout that kernels are compiled for."""
    c, m = (np.ascontiguousarray(array, dtype=np.float64) for array in (center, matrix))
    if m.shape != (c.size, c.size):
        raise InvalidInput(f"matrix must have shape {(c.size, c.size)}, got {m.shape}")
    if not radius > 0.0:
        raise InvalidInput(f"radius must be positive, got {radius}")
    return Ellipsoid(c, m, float(radius))


def make_ball(dim: int, radius: float) -> Ellipsoid:
    """The Euclidean ball around 0."""
    return Ellipsoid(np.zeros(dim), np.eye(dim), float(radius))


def unbounded(dim: int) -> Ellipsoid:
    """All of space, for kernels that take an ellipsoid."""
    return make_ball(dim, math.inf)


@kernel
def project_ball(theta: FloatArray, radius: float) -> None:
    """Move ``theta`` to the nearest point of the Euclidean ball around 0, in place."""
    length = norm(theta)
    if length > radius:
        for i in range(theta.shape[0]):
            theta[i] *= radius / length


@kernel
def ellipsoid_distance(theta: FloatArray, ellipsoid: Ellipsoid) -> float:
    """``||theta - center||_matrix``."""
    center, matrix = ellipsoid.center, ellipsoid.matrix
    total = 0.0
    for i in range(theta.shape[0]):
        row = 0.0
        for j in range(theta.shape[0]):
            row += matrix[i, j] * (theta[j] - center[j])
        total += row * (theta[i] - center[i])
    return math.sqrt(max(0.0, total))


@inlined_kernel
def secular_root(curvatures: FloatArray, coordinates: FloatArray, radius: float) -> float:
    """The multiplier m >= 0 with sum_i b_i u_i^2 / (1 + m b_i)^2 = radius^2; 0 when the sum is below it.

    ``curvatures`` b_i >= 0.  Starts at 0 and never passes the root but for rounding.
    """
    multiplier = 0.0
    for _ in range(_SECULAR_ITERATIONS):
        squared, slope = 0.0, 0.0
        for i in range(curvatures.shape[0]):
            share = 1.0 + multiplier * curvatures[i]
            shrunk = coordinates[i] / share
            term = curvatures[i] * (shrunk * shrunk)
            squared += term
            slope += term * curvatures[i] / share
        length = math.sqrt(squared)
        if length <= radius * (1.0 + _ROUNDING) or slope <= 0.0:
            break
        multiplier += (length - radius) / radius * squared / slope
    return multiplier


@allocating_kernel
def project_ellipsoid_metric(theta: FloatArray, ellipsoid: Ellipsoid, metric: FloatArray) -> bool:
    """Project ``theta`` on the ellipsoid in the norm of ``metric``, in place; a radius of 0 leaves the center.

    False, with ``theta`` unchanged, when ``metric`` has no Cholesky factor.
    """
    if ellipsoid_distance(theta, ellipsoid) <= ellipsoid.radius:
        return True
    dim, center = theta.shape[0], ellipsoid.center
    matrices = np.empty((3, dim, dim))
    if not cholesky(metric, matrices[0]):
        return False
    if ellipsoid.radius > 0.0:
        _shrink_in_eigenbasis(theta, ellipsoid, matrices, np.zeros((3, dim)))
    distance = ellipsoid_distance(theta, ellipsoid)
    pull = min(1.0, max(ellipsoid.radius, 0.0) / distance)  # what rounding left outside goes along the ray
    for i in range(dim):
        theta[i] = center[i] + pull * (theta[i] - center[i])
    return True


@inlined_kernel
def _shrink_in_eigenbasis(theta: FloatArray, ellipsoid: Ellipsoid, matrices: FloatArray, vectors: FloatArray) -> None:
    """In coordinates where the metric is the identity and the matrix diagonal, shrink by the secular root.

    The first of ``matrices`` is the metric's Cholesky factor; the others are room to work in, and so are ``vectors``,
    which are 0.
    """
    dim, center = theta.shape[0], ellipsoid.center
    factor, basis = matrices[0], matrices[1]
    curvatures, coordinates, offset = vectors[0], vectors[1], vectors[2]
    _whiten(ellipsoid.matrix, factor, matrices[2])
    symmetric_eigen(matrices[2], curvatures, basis)
    for i in range(dim):
        curvatures[i] = max(curvatures[i], 0.0)
    for i in range(dim):
        for j in range(i, dim):
            offset[i] += factor[j, i] * (theta[j] - center[j])
    for i in range(dim):
        for j in range(dim):
            coordinates[i] += basis[j, i] * offset[j]
    multiplier = secular_root(curvatures, coordinates, ellipsoid.radius)
    for i in range(dim):
        offset[i] = 0.0
        for j in range(dim):
            offset[i] += basis[i, j] * coordinates[j] / (1.0 + multiplier * curvatures[j])
    solve_upper(factor, offset, offset)
    for i in range(dim):
        theta[i] = center[i] + offset[i]


@inlined_kernel
def _whiten(matrix: FloatArray, factor: FloatArray, out: FloatArray) -> None:
    """L^-1 matrix L^-T, symmetric to the bit."""
    dim = matrix.shape[0]
    for i in range(dim):
        solve_lower(factor, matrix[i], out[i])
    for column in range(dim):
        for i in range(dim):
            value = out[i, column]
            for k in range(i):
                value -= factor[i, k] * out[k, column]
            out[i, column] = value / factor[i, i]
    for i in range(dim):
        for j in range(i):
            out[i, j] = 0.5 * (out[i, j] + out[j, i])
            out[j, i] = out[i, j]


@allocating_kernel
def project_ball_metric(theta: FloatArray, radius: float, metric: FloatArray) -> bool:
    """Project on the Euclidean ball around 0 in the norm of ``metric``, in place.

    False, with ``theta`` unchanged, when ``metric`` has no Cholesky factor.
    """
    dim = theta.shape[0]
    return project_ellipsoid_metric(theta, Ellipsoid(np.zeros(dim), identity(dim), radius), metric)


def project_region_metric(theta: FloatArray, region: Region, metric: FloatArray) -> bool:
    """Project on a region in the norm of ``metric``, in place.

    When both of its sets bind, the multiplier of the ellipsoid is bracketed and found by regula falsi (Illinois), the
    ball being solved exactly inside: the distance to the center decreases in it.  False, with ``theta`` in the ball
    and as near to the ellipsoid as found, when the sets do not meet.  Not a kernel: most regions need one set only,
    and what is not called is not compiled.
    """
    ellipsoid, start, trial = region.ellipsoid, theta.copy(), theta.copy()
    if not _project_on_ellipsoid(theta, make_ball(theta.size, region.ball_radius), metric):
        return False
    if math.isinf(ellipsoid.radius) or ellipsoid_distance(theta, ellipsoid) <= ellipsoid.radius:
        return True
    if not _project_on_ellipsoid(trial, ellipsoid, metric):
        return False
    if norm(trial) <= region.ball_radius:
        theta[:] = trial
        return True
    return _project_on_both(start, region, metric, theta)


@allocating_kernel
def _penalised_in_ball(
    theta: FloatArray, region: Region, metric: FloatArray, multiplier: float, out: FloatArray
) -> float:
    """Minimise metric distance^2 + multiplier * ellipsoid distance^2 over the ball; returns the latter.

    Both terms are divided by 1 + multiplier, so that no multiplier is too large.
    """
    dim, center, matrix = theta.shape[0], region.ellipsoid.center, region.ellipsoid.matrix
    share = 1.0 / (1.0 + multiplier)
    combined, factor = np.empty((dim, dim)), np.empty((dim, dim))
    for i in range(dim):
        out[i] = 0.0
        for j in range(dim):
            combined[i, j] = share * metric[i, j] + (1.0 - share) * matrix[i, j]
            out[i] += share * metric[i, j] * theta[j] + (1.0 - share) * matrix[i, j] * center[j]
    if not cholesky(combined, factor):
        return math.inf
    solve_cholesky(factor, out, out)
    project_ball_metric(out, region.ball_radius, combined)  # cannot fail: ``combined`` has a factor
    return ellipsoid_distance(out, region.ellipsoid)


@allocating_kernel
def _both_bind(start: FloatArray, region: Region, metric: FloatArray, theta: FloatArray) -> bool:
    """Write into ``theta`` the point whose multiplier puts it on both boundaries, from the inner side."""
    radius = region.ellipsoid.radius
    low, low_gap = 0.0, ellipsoid_distance(theta, region.ellipsoid) / radius - 1.0
    high, high_gap, remaining, last_side = 0.0, low_gap, 1.0, 0
    unit = trace(metric) / max(trace(region.ellipsoid.matrix), 1e-300)
    trial = theta.copy()
    for _ in range(_MULTIPLIER_ITERATIONS):
        bracketed = high_gap <= 0.0
        if bracketed and (remaining <= _ROUNDING or high - low <= 1e-15 * high):
            return True
        if bracketed:
            middle = (low * high_gap - high * low_gap) / (high_gap - low_gap)
        else:
            middle = unit if high == 0.0 else 16.0 * high
            if middle > 1e15 * max(unit, 1.0):
                break
        gap = _penalised_in_ball(start, region, metric, middle, trial) / radius - 1.0
        if gap <= 0.0:
            low_gap *= 0.5 if last_side == -1 else 1.0
            high, high_gap, remaining, last_side = middle, gap, -gap, -1
            copy_into(trial, theta)
        elif bracketed:
            high_gap *= 0.5 if last_side == 1 else 1.0
            low, low_gap, last_side = middle, gap, 1
        else:
            low, low_gap, high, high_gap = middle, gap, middle, gap
    if high_gap > 0.0:
        copy_into(trial, theta)
    return high_gap <= 0.0


_project_on_ellipsoid = as_entry(project_ellipsoid_metric)
_project_on_both = as_entry(_both_bind)
