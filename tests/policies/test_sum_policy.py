"""`SumPolicy`: what an author's arithmetic gives is kept within what was charged."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest

from tacit.extend import Contribution, FloatArray, IntArray, SumPolicy, standard_normals
from tacit.privacy.report import Model


class Wild(SumPolicy):
    """Contributions that keep to nothing: ``factor`` times the features."""

    name: ClassVar[str] = "wild"
    guarantee: ClassVar[Model] = "joint"
    factor: float = 1.0

    @property
    def contribution(self) -> Contribution:
        return Contribution(self.setting.dim, 1.0, 2.0)

    def contribute(self, features: FloatArray, rewards: FloatArray) -> FloatArray:
        return self.factor * features

    def solve(self, sums: FloatArray, noise_sd: float, decisions: int) -> FloatArray:
        return sums.copy()

    def choose(self, estimate: FloatArray, contexts: FloatArray, coins: FloatArray) -> IntArray:
        return np.asarray((contexts @ estimate).argmax(axis=1))


@pytest.mark.parametrize(("factor", "length"), [(0.5, 0.5), (1.0, 1.0), (7.0, 1.0), (1e100, 1.0)])
def test_longer_contributions_are_cut_to_the_stated_norm(factor: float, length: float) -> None:
    policy = Wild(dim=3, epsilon=1.0, delta=1e-6, seed=1)
    policy.factor = factor
    policy.update(policy.select(np.eye(3)), 1.0)
    found = float(np.linalg.norm(policy.state.stream.leaf))
    assert found == pytest.approx(length, abs=policy.state.stream.constants.grid)


@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e300])
def test_contributions_that_are_no_numbers_are_left_out(factor: float) -> None:
    policy = Wild(dim=3, epsilon=1.0, delta=1e-6, seed=1)
    policy.factor = factor
    with np.errstate(invalid="ignore"):
        policy.update(policy.select(np.eye(3)), 1.0)
        assert not np.any(policy.state.stream.leaf)


def test_coins_become_gaussian_numbers() -> None:
    numbers = standard_normals(np.array([0.0, 0.5, 0.975]))
    assert np.all(np.isfinite(numbers))
    np.testing.assert_allclose(numbers[1:], [0.0, 1.959964], atol=1e-6)
