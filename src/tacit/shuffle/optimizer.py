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
    """The result of `gradient_descent`, all of it public.

    Parameters
    ----------
    theta : ndarray, shape (d,)
        A point near the minimum.
    path : ndarray, shape (rounds, d)
        The points visited.
    rounds : int
        Number of releases used.
    """

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
    """Minimise a loss by the paper's P_GD: projected descent with a fixed step, averaged over its points.

    Minimises ``sum_i loss_i(theta) + ridge/2 ||theta||^2`` over the ball of ``radius``, whose diameter is
    2 radius; step ``2 diameter / (lipschitz sqrt(rounds))`` as in the paper's Algorithm P_GD (Cheu et
    al., arXiv 2106.09805).

    Parameters
    ----------
    sum_gradients : callable
        Releases the noisy sum of the users' gradients at a point: shape (d,) in and out.
    start : ndarray, shape (d,)
        First point; projected into the ball.
    users : int
        Number of users, by which gradient sums are divided.
    radius : float
        Radius of the ball around 0.
    lipschitz : float
        Lipschitz constant of one user's loss.
    rounds : int
        Number of releases.
    ridge : float, default 0
        Not negative; public, and enters exactly.

    Returns
    -------
    Minimum
        The mean of the points visited, and the points.

    Raises
    ------
    InvalidInput
        When a number is out of range, or a gradient does not have the shape of ``start``.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import gradient_descent
    >>> found = gradient_descent(
    ...     lambda theta: 100 * (theta - [0.3, -0.4]), np.zeros(2), users=100, radius=1.0, lipschitz=2.0, rounds=400
    ... )
    >>> found.theta.round(2).tolist()
    [0.29, -0.39]
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
