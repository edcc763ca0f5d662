"""The loss of every link, l(theta) = -r z + int_0^z mu with z = <x, theta>, summed over rows.

Gradient (mu(z) - r) x, Hessian mu'(z) x x'.  Up to a constant it is the negative log-likelihood of the
canonical links; for probit it is not the probit likelihood, yet convex, and theta* minimises its expectation.

Every kernel takes the buffers of ``tacit.glm.rows``: an empty ``weights`` means all ones, ``selected`` of
``ALL_ROWS`` means every one of the first ``count`` rows, else those with ``mask[i] == selected``.
"""

from __future__ import annotations

from tacit._compile import kernel
from tacit.glm.links import antiderivative, derivative, mean
from tacit.glm.rows import ALL_ROWS
from tacit.linalg.solve import dot
from tacit.typing import ByteArray, FloatArray


@kernel
def row_weight(i: int, weights: FloatArray, mask: ByteArray, selected: int) -> float:
    """Weight of row ``i``: 0 when the mask leaves it out."""
    if selected != ALL_ROWS and mask[i] != selected:
        return 0.0
    return 1.0 if weights.shape[0] == 0 else weights[i]


@kernel
def loss_sum(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    weights: FloatArray,
    mask: ByteArray,
    selected: int,
    theta: FloatArray,
) -> float:
    """The loss summed over the rows."""
    origin = antiderivative(link, 0.0)
    total = 0.0
    for i in range(count):
        weight = row_weight(i, weights, mask, selected)
        if weight != 0.0:
            z = dot(features[i], theta)
            total += weight * (antiderivative(link, z) - origin - rewards[i] * z)
    return total


@kernel
def evaluate(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    weights: FloatArray,
    mask: ByteArray,
    selected: int,
    theta: FloatArray,
    gradient: FloatArray,
    hessian: FloatArray,
) -> float:
    """The loss summed over the rows, with its gradient and Hessian written out, in one pass."""
    dim = theta.shape[0]
    for j in range(dim):
        gradient[j] = 0.0
        for k in range(dim):
            hessian[j, k] = 0.0
    origin = antiderivative(link, 0.0)
    total = 0.0
    for i in range(count):
        weight = row_weight(i, weights, mask, selected)
        if weight == 0.0:
            continue
        x = features[i]
        z = dot(x, theta)
        total += weight * (antiderivative(link, z) - origin - rewards[i] * z)
        residual = weight * (mean(link, z) - rewards[i])
        curvature = weight * derivative(link, z)
        for j in range(dim):
            gradient[j] += residual * x[j]
            scaled = curvature * x[j]
            for k in range(j + 1):
                hessian[j, k] += scaled * x[k]
    for j in range(dim):
        for k in range(j):
            hessian[k, j] = hessian[j, k]
    return total
