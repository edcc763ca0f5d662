"""The loss of every link, l(theta) = -r z + int_0^z mu with z = <x, theta>, summed over rows.

Gradient (mu(z) - r) x, Hessian mu'(z) x x'.  Up to a constant it is the negative log-likelihood of the
canonical links; for probit it is not the probit likelihood, yet convex, and theta* minimises its expectation.
"""

from __future__ import annotations

from tacit._compile import inlined_kernel
from tacit.glm.links import LinkForm, antiderivative, derivative, mean
from tacit.glm.rows import Selection, has_mark
from tacit.linalg.solve import dot
from tacit.typing import FloatArray


@inlined_kernel
def evaluate(
    link: LinkForm, selection: Selection, theta: FloatArray, gradient: FloatArray, hessian: FloatArray
) -> float:
    """The loss summed over the selected rows, with its gradient and Hessian written out, in one pass."""
    dim, mark = theta.shape[0], selection.mark
    features, rewards, mask, held = selection.rows
    for j in range(dim):
        gradient[j] = 0.0
        for k in range(dim):
            hessian[j, k] = 0.0
    origin = antiderivative(link, 0.0)
    total = 0.0
    for i in range(held[()]):
        if not has_mark(mask, i, mark):
            continue
        x = features[i]
        reward = rewards[i]
        z = dot(x, theta)
        total += antiderivative(link, z) - origin - reward * z
        residual, curvature = mean(link, z) - reward, derivative(link, z)
        for j in range(dim):
            gradient[j] += residual * x[j]
            scaled = curvature * x[j]
            for k in range(j + 1):
                hessian[j, k] += scaled * x[k]
    for j in range(dim):
        for k in range(j):
            hessian[k, j] = hessian[j, k]
    return total
