"""Gradient descent over released gradient sums, as bits and as sums."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.calibration import paper_rounds
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.optimizer import definite_metric, gradient_descent
from tacit.shuffle.planning import BatchPlan, SumRequest, plan_batch
from tacit.shuffle.randomizer import randomize
from tacit.shuffle.shuffler import Shuffler
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

USERS, DIM, RADIUS = 20_000, 3, 2.0
THETA = np.array([1.0, -0.8, 0.5])


def data() -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(USERS, DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    r = (rng.random(USERS) < 1.0 / (1.0 + np.exp(-x @ THETA))).astype(np.float64)
    return x, r


X, R = data()


def gradients(theta: FloatArray) -> FloatArray:
    return np.asarray((1.0 / (1.0 + np.exp(-X @ theta)) - R)[:, None] * X, dtype=np.float64)


def hessian(theta: FloatArray) -> FloatArray:
    mean = 1.0 / (1.0 + np.exp(-X @ theta))
    return np.asarray((X.T * (mean * (1.0 - mean))) @ X, dtype=np.float64)


class Released:
    """Gradient sums of a plan, one round after the other, through bits or as sums."""

    def __init__(self, plan: BatchPlan, bits: bool) -> None:
        self.plan, self.bits, self.used = plan, bits, 0
        self.rng = np.random.default_rng(5)

    def __call__(self, theta: FloatArray) -> FloatArray:
        protocol = self.plan["gradient"].round(self.used)
        self.used += 1
        if not self.bits:
            return sample_sum(protocol, gradients(theta), self.rng).decoded()
        shuffler = Shuffler(protocol)
        shuffler.collect(randomize(protocol, gradients(theta), self.rng))
        return analyze(protocol, shuffler.release(self.rng)).decoded()


def exact_minimum(ridge: float) -> FloatArray:
    """Newton's method on the exact sums; the minimum lies inside the ball."""
    theta = np.zeros(DIM)
    for _ in range(20):
        gradient = gradients(theta).sum(axis=0) + ridge * theta
        theta = theta - np.linalg.solve(hessian(theta) + ridge * np.eye(DIM), gradient)
    assert np.linalg.norm(gradients(theta).sum(axis=0) + ridge * theta) < 1e-6
    return theta


def planned(rounds: int) -> BatchPlan:
    requests = [
        SumRequest("matrix", OuterProducts(DIM), share=0.3),
        SumRequest("gradient", Ball(DIM), rounds, share=0.7),
    ]
    return plan_batch(USERS, 1.0, 1e-6, requests)


@pytest.mark.parametrize("bits", [True, False])
def test_gradient_descent_of_the_paper(bits: bool) -> None:
    rounds = 60
    plan = planned(rounds)
    released = Released(plan, bits)
    found = gradient_descent(
        released, np.zeros(DIM), users=USERS, radius=RADIUS, lipschitz=1.0, rounds=rounds, ridge=10.0
    )
    assert released.used == rounds
    assert np.linalg.norm(found.theta - exact_minimum(10.0)) < 0.4
    assert np.allclose(found.theta, found.path.mean(axis=0))


def test_rounds_of_the_paper() -> None:
    assert paper_rounds(10_000, 5, 0.5, 0.5e-6) == 308


def test_a_noisy_matrix_is_made_definite() -> None:
    noisy = np.diag([5.0, -3.0])
    assert np.allclose(definite_metric(noisy, 2.0), np.diag([7.0, 2.0]))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidInput, match="sum_gradients"):
        gradient_descent(lambda t: t[:1], np.zeros(2), users=1, radius=1.0, lipschitz=1.0, rounds=1)
    with pytest.raises(InvalidInput, match="start"):
        gradient_descent(lambda t: t, np.array([np.nan]), users=1, radius=1.0, lipschitz=1.0, rounds=1)
