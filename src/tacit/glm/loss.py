"""The loss of every link, l(theta) = -r z + int_0^z mu with z = <x, theta>, summed over rows.

Gradient (mu(z) - r) x, Hessian mu'(z) x x'.  Up to a constant it is the negative log-likelihood of the
canonical links; for probit it is not the probit likelihood, yet convex, and theta* minimises its expectation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.glm.link import Link
from tacit.typing import FloatArray


class Expansion(NamedTuple):
    """A function of theta around one point, to second order."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def evaluate(link: Link, features: FloatArray, rewards: FloatArray, theta: FloatArray) -> Expansion:
    """Sum the loss over rows of ``features``, shape (n, d), with its gradient and Hessian."""
    z = features.dot(theta)
    value = float((link.antiderivative(z) - link.antiderivative_at(0.0)).sum() - rewards.dot(z))
    return Expansion(value, (link.mean(z) - rewards).dot(features), weighted_outers(features, link.derivative(z)))


def weighted_outers(features: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum w x x' over rows, symmetric to the bit; no weight is negative."""
    rooted = features * np.sqrt(weights)[:, np.newaxis]
    return np.asarray(rooted.T.dot(rooted))
