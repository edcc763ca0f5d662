"""Worlds with stated rates: the rates hold, users are uneven, and what cannot be is refused with words."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.environments.stated import StatedRates, crowd, draw_truth, stated_arms
from tacit.errors import InvalidInput
from tacit.experiments.schemas import load_schema
from tacit.features import Category, Flag, Number, Schema

FINITE = Schema(user=[Number("age", 0, 9)], arm=[Category("topic", ["a", "b", "c"]), Flag("new")])
CROSSED = Schema(user=FINITE.user, arm=FINITE.arm, crosses=[("age", "topic")])


@pytest.mark.parametrize("rates", [StatedRates(0.09, 0.13, 0.1), StatedRates(0.09, 0.13, 0.12), StatedRates(0.4, 0.5)])
@pytest.mark.parametrize(("name", "arms"), [("patients", 4), ("articles", 8)])
def test_stated_rates_hold(name: str, arms: int, rates: StatedRates) -> None:
    people = crowd(load_schema(name), arms, (1, 2)).acting
    sizes = []
    for seed in range(3):
        truth = draw_truth(np.random.default_rng(seed), people, rates)
        means, near = truth.means(people), 0.011 * (rates.best - rates.random)
        assert means.mean() == pytest.approx(rates.random, abs=near)
        assert means.max(axis=2).mean() == pytest.approx(rates.best, abs=near)
        one_arm = means.mean(axis=1).max(axis=1).mean()
        if rates.one_arm is not None:
            assert one_arm == pytest.approx(rates.one_arm, abs=near)
        sizes.append(one_arm)
    assert rates.one_arm is not None or max(sizes) > min(sizes) + 0.02 * (rates.best - rates.random)


def test_arms_are_those_that_the_schema_lists_or_as_many_as_are_asked_for() -> None:
    assert stated_arms(load_schema("patients")) == 4
    assert stated_arms(load_schema("patients"), 3) == 3
    assert stated_arms(FINITE) == 6
    assert stated_arms(load_schema("articles"), 7) == 7
    assert crowd(CROSSED, 6, (0,)).seen.shape[0] == 1
    assert crowd(CROSSED, 4, (0,)).seen.shape[2] == 4
    with pytest.raises(InvalidInput, match="arms must be given"):
        stated_arms(load_schema("articles"))
    with pytest.raises(InvalidInput, match="nothing to choose"):
        stated_arms(Schema(user=[Flag("young")]))


def test_users_are_not_uniform_and_differ_between_worlds() -> None:
    schema = Schema(user=[Category("kind", ["a", "b", "c", "d"])], arm=[Flag("new")], crosses=[("kind", "new")])
    shares = [crowd(schema, 2, (3, world)).seen[0, :, 0, 1:5].astype(bool).mean(axis=0) for world in range(2)]
    assert np.ptp(shares[0]) > 0.1
    assert not np.allclose(shares[0], shares[1], atol=0.05)


def test_some_numbers_matter_by_a_threshold_and_are_seen_as_they_are() -> None:
    schema = Schema(user=[Number(f"n{i}", 0, 1) for i in range(8)], arm=[Flag("new")], intercept=False)
    people = crowd(schema, 2, (0, 1))
    seen, acting = (np.array([np.unique(rows[..., i]).size for i in range(8)]) for rows in people)
    assert np.all(seen > 100)
    assert set(acting[acting != seen]) == {2}
    assert 0 < np.sum(acting == 2) < 8


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ((0.3, 0.3, None), "best_rate must be above random_rate=0.3"),
        ((0.3, 1.2, None), "best_rate must lie strictly between 0 and 1"),
        ((0.0, 0.2, None), "random_rate must lie strictly between 0 and 1"),
        ((0.1, 0.2, 0.05), "one_arm_rate must lie between random_rate=0.1 and best_rate=0.2, got 0.05"),
        ((0.1, 0.2, float("nan")), "one_arm_rate must lie between"),
    ],
)
def test_rates_that_cannot_be_are_refused(rates: tuple[float, float, float | None], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        StatedRates(*rates)


def test_what_no_world_has_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match=r"at most 0\.6, got 0\.7: no arm earns more than all 6"):
        draw_truth(np.random.default_rng(0), crowd(CROSSED, 6, (0,)).acting, StatedRates(0.1, 0.7))
    # Without crosses all users are alike: one arm is the best for everybody.
    with pytest.raises(InvalidInput, match=r"one_arm_rate=0\.21 did not hold .* in the nearest one"):
        draw_truth(np.random.default_rng(0), crowd(FINITE, 6, (0,)).acting, StatedRates(0.2, 0.3, 0.21))
