"""Shuffle-private minimisation of a sum of users' losses over a ball, one shuffled gradient sum per
round.

Both methods see the users only through ``sum_gradients(theta)``, which releases the noisy sum of their
gradients at a public point: through the three roles or as a sampled sum, the optimizer cannot tell.
Everything here is post-processing of those releases, so privacy is that of the plan under which they are
made (``plan_batch``). Regularisers and preconditioners are public and enter exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit._validate import integer_at_least, nonnegative, positive
from tacit.errors import InvalidInput
from tacit.linalg.projection import project_ball, project_ball_metric
from tacit.shuffle.messages import report_bytes
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

SumGradients = Callable[[FloatArray], FloatArray]
"""Releases the noisy sum of the users' gradients at a point."""


@dataclass(frozen=True)
class Participation:
    """What one user is asked for: ``rounds`` reports of ``bytes_per_round`` bytes."""

    rounds: int
    bytes_per_round: int

    @property
    def bytes(self) -> int:
        """Bytes that one user sends over all rounds."""
        return self.rounds * self.bytes_per_round


def participation(protocol: SumProtocol, rounds: int) -> Participation:
    """Participation in ``rounds`` gradient sums under ``protocol``."""
    return Participation(integer_at_least("rounds", rounds, 1), report_bytes(protocol))


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
        theta = theta - (step / users) * gradient
        project_ball(theta, radius)
    return Minimum(path.mean(axis=0), path, rounds)


def newton(
    sum_gradients: SumGradients,
    curvature: FloatArray,
    start: FloatArray,
    *,
    radius: float,
    rounds: int,
    ridge: float,
    steps: Sequence[float] | None = None,
) -> Minimum:
    """Few rounds, preconditioned by a matrix that was released already.

    ``curvature`` stands for the sum of the losses' Hessians: where it is at least the true one, each
    round decreases the loss up to noise; where it is right, one round reaches the minimum up to noise.
    Noise may have left it with eigenvalues below 0, which are raised to 0 before ``ridge`` is added. A
    round moves by ``steps[j]`` (1 by default) of the Newton step and projects on the ball in the norm of
    the preconditioner, which is the constrained minimum of the quadratic model.
    """
    integer_at_least("rounds", rounds, 1)
    positive("ridge", ridge)
    lengths = np.ones(rounds) if steps is None else np.asarray(steps, dtype=np.float64)
    if lengths.shape != (rounds,) or not np.all((lengths > 0.0) & (lengths <= 1.0)):
        raise InvalidInput(f"steps must be {rounds} numbers in (0, 1], got {steps!r}")
    theta = _start(start, positive("radius", radius))
    metric = preconditioner(curvature, ridge)
    path = np.empty((rounds, theta.size))
    for index in range(rounds):
        path[index] = theta
        gradient = _released(sum_gradients, theta) + ridge * theta
        theta = theta - lengths[index] * np.linalg.solve(metric, gradient)
        project_ball_metric(theta, radius, metric)
    return Minimum(theta, path, rounds)


def preconditioner(curvature: FloatArray, ridge: float) -> FloatArray:
    """``curvature`` made positive semidefinite, plus ``ridge`` times the identity."""
    symmetric = 0.5 * (curvature + curvature.T)
    values, vectors = np.linalg.eigh(symmetric)
    raised = np.maximum(values, 0.0) + ridge
    return np.asarray((vectors * raised) @ vectors.T, dtype=np.float64)


def _start(start: FloatArray, radius: float) -> FloatArray:
    theta = np.array(start, dtype=np.float64)
    if theta.ndim != 1 or not np.all(np.isfinite(theta)):
        raise InvalidInput(f"start must be a finite vector, got shape {theta.shape}")
    project_ball(theta, radius)
    return theta


def _released(sum_gradients: SumGradients, theta: FloatArray) -> FloatArray:
    gradient = np.asarray(sum_gradients(theta.copy()), dtype=np.float64)
    if gradient.shape != theta.shape:
        raise InvalidInput(f"sum_gradients must return shape {theta.shape}, got {gradient.shape}")
    return gradient
