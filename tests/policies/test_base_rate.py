"""The option ``base_rate``: every policy takes it, keeps it, and draws the noise of the shifted link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.environments import make_environment
from tacit.errors import InvalidInput
from tacit.estimation.linearised import row_with_scale
from tacit.estimation.sensitivity import gradient_diameter
from tacit.experiments.results import described
from tacit.experiments.spec import Experiment
from tacit.policies.registry import POLICIES, policy_class
from tests.contracts.links import link_called


def _make(name: str, **fields: Any) -> Any:
    private = {"epsilon": 4.0, "delta": 1e-5} if policy_class(name).guarantee != "none" else {}
    return tacit.make_policy(name, **({"dim": 2, "horizon": 200, "theta_bound": 2.0, "seed": 1} | private | fields))


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_takes_and_keeps_it(name: str, tmp_path: Path) -> None:
    policy = _make(name, base_rate=0.08)
    assert float(policy.setting.link.mean(0.0)) == pytest.approx(0.08)
    assert policy.setting.kappa == pytest.approx(link_called("logistic at 0.08").kappa(2.0))
    rng = np.random.default_rng(2)
    for _ in range(20):
        decision = policy.select(rng.uniform(-0.7, 0.7, (4, 2)))
        policy.update(decision, float(rng.random() < 0.08))
    policy.save(tmp_path / "state")
    loaded = tacit.load(tmp_path / "state")
    assert loaded.config == policy.config
    assert loaded.setting.link == policy.setting.link


@pytest.mark.parametrize("name", list(POLICIES))
def test_that_of_the_link_itself_changes_nothing(name: str) -> None:
    contexts = np.random.default_rng(3).uniform(-0.7, 0.7, (150, 4, 2))
    rewards = (contexts[:, :, 0] > 0.1).astype(float)
    fields = {"blend": 0.5} if name == "stream-glm" else {}
    played = [_make(name, **fields, **given).play(contexts, rewards) for given in ({}, {"base_rate": 0.5})]
    if "linucb" not in name and name != "adaprivate-ts":  # which have no link, and fit r - 1/2
        assert np.array_equal(*played)


@pytest.mark.parametrize("rate", [0.0, 1.0, 1.5, -0.1, "often", True])
def test_errors_name_it(rate: Any) -> None:
    with pytest.raises(InvalidInput, match="base_rate"):
        _make("stream-glm", base_rate=rate)


def test_noise_is_that_of_the_shifted_link() -> None:
    rare = link_called("logistic at 0.01")
    stream = _make("stream-glm", base_rate=0.01)
    row = stream._row
    assert row == row_with_scale(rare, 2.0, 1.0, 1.0, row.scale)
    assert stream._plan(200).row_bound == row.row_bound
    problem = _make("joint-glm", base_rate=0.01)._problem(ridge=1.0)
    assert problem.sensitivity == gradient_diameter(rare, 2.0, 1.0)
    assert problem.sensitivity > 1.2 * gradient_diameter(link_called("logistic"), 2.0, 1.0)


def test_linear_policies_fit_what_is_above_it() -> None:
    policy = _make("joint-linucb", base_rate=0.25, reward_weight=1.0)
    x = np.array([[0.6, 0.8]])
    decision = policy.select(x)
    policy.update(decision, 1.0)
    np.testing.assert_allclose(policy.state.stream.leaf[-2:], 0.75 * x[0], rtol=1e-3)  # or on a grid
    assert policy._plan(200).row_norm == pytest.approx(np.hypot(1.0, 0.75))


def test_a_simulation_at_a_base_rate() -> None:
    world = make_environment(link="probit", dim=3, arms=6, horizon=400, theta_norm=1e-6, base_rate=0.2)
    (block,) = world.blocks(np.random.default_rng(4))
    assert np.mean(block.rewards) == pytest.approx(0.2, abs=4.0 * 0.4 / np.sqrt(400))
    experiment = Experiment(policy="random", link="logistic", dim=2, arms=3, horizon=50, theta_norm=1.0, base_rate=0.2)
    assert described(experiment)["base_rate"] == experiment.make_policy(1).config.base_rate == 0.2
    assert experiment.environment().setting.link == experiment.make_policy(1).setting.link
    plain = Experiment(policy="random", link="logistic", dim=2, arms=3, horizon=50, theta_norm=1.0)
    assert "base_rate" not in described(plain)
