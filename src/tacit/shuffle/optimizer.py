"""Shuffle-private minimisation of a sum of users' losses over a ball, one shuffled gradient sum per round.

The users are seen only through ``sum_gradients(theta)``, which releases the noisy sum of their gradients at a
public point: through the three roles or as a sampled sum, the optimizer cannot tell.  Everything here is
post-processing of those releases, so that privacy is that of the plan under which they are made (``plan_batch``).
Regularisers are public and enter exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit._validate import integer_at_least, nonnegative, positive
from tacit.errors import InvalidInput
from tacit.linalg.ball import into_ball
from tacit.typing import FloatArray

SumGradients = Callable[[FloatArray], FloatArray]
"""Releases the noisy sum of the users' gradients at a point."""


@dataclass(frozen=True)
class Minimum:
    """A point near the minimum, the points visited (public), and how many releases were used."""

    theta: FloatArray
    path: FloatArray
    rounds: int


def gradient_descent(
    sum_gradients: SumGradients,
    start: FloatArray,
    *,
    users: int,
    radius: float,
    lipschitz: float,
    rounds: int,
    ridge: float = 0.0,
) -> Minimum:
    """The paper's P_GD: projected descent on the mean loss with a fixed step, averaged over its points.

    Minimises ``sum_i loss_i(theta) + ridge/2 ||theta||^2`` over the ball of ``radius``, whose diameter is
    2 radius; step ``2 diameter / (lipschitz sqrt(rounds))`` as in the paper's Algorithm P_GD (Cheu et
    al., arXiv 2106.09805). ``lipschitz`` is that of one user's loss.
    """
    integer_at_least("users", users, 1)
    integer_at_least("rounds", rounds, 1)
    nonnegative("ridge", ridge)
    step = 2.0 * (2.0 * positive("radius", radius)) / (positive("lipschitz", lipschitz) * math.sqrt(rounds))
    theta = _start(start, radius)
    path = np.empty((rounds, theta.size))
    for index in range(rounds):
        path[index] = theta
        gradient = _released(sum_gradients, theta) + ridge * theta
        theta = into_ball(theta - (step / users) * gradient, radius)
    return Minimum(path.mean(axis=0), path, rounds)


def definite_metric(curvature: FloatArray, ridge: float) -> FloatArray:
    """``curvature`` made positive semidefinite, plus ``ridge`` times the identity."""
    symmetric = 0.5 * (curvature + curvature.T)
    values, vectors = np.linalg.eigh(symmetric)
    raised = np.maximum(values, 0.0) + ridge
    return np.asarray((vectors * raised) @ vectors.T, dtype=np.float64)


def _start(start: FloatArray, radius: float) -> FloatArray:
    theta = np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.all(np.isfinite(theta)):
        raise InvalidInput(f"start must be a finite vector, got shape {theta.shape}")
    return into_ball(theta, radius)


def _released(sum_gradients: SumGradients, theta: FloatArray) -> FloatArray:
    gradient = np.asarray(sum_gradients(theta.copy()), dtype=np.float64)
    if gradient.shape != theta.shape:
        raise InvalidInput(f"sum_gradients must return shape {theta.shape}, got {gradient.shape}")
    return gradient
