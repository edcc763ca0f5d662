"""Instances have the distribution that they claim, and regret is what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.environments import Block, Environment, EnvironmentSetting, make_environment
from tacit.environments.synthetic import SHIFT_SCALE, assouad_theta, uniform_ball
from tacit.errors import InvalidInput
from tacit.glm.links import LINKS, get_link
from tacit.typing import FloatArray

KINDS = ("ball", "fixed", "shift", "assouad")


def play(environment: Environment, seed: int = 0) -> Block:
    """All rounds of one instance in one block."""
    blocks = list(environment.blocks(np.random.default_rng(seed)))
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def world(**changes: object) -> Environment:
    settings: dict[str, object] = {"link": "logistic", "dim": 3, "arms": 6, "horizon": 400, "theta_norm": 2.0}
    return make_environment(**{**settings, **changes})  # type: ignore[arg-type]


def theta_of(environment: Environment, seed: int) -> FloatArray:
    """theta* of the instance of this seed: every kind draws it first."""
    rng, setting = np.random.default_rng(seed), environment.setting
    return assouad_theta(rng, setting) if environment.kind.name == "assouad" else setting.draw_theta(rng)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_arms_are_uniform_in_the_ball(dim: int) -> None:
    points = uniform_ball(np.random.default_rng(1), 400, 50, dim).reshape(-1, dim)
    squares = np.sum(points**2, axis=1)
    error = np.std(squares) / math.sqrt(squares.size)
    assert np.max(squares) <= 1.0 + 1e-12
    assert abs(np.mean(squares) - dim / (dim + 2)) < 4 * error
    assert abs(np.mean(squares) - 1.0) > 10 * error  # the sphere would be rejected
    assert np.all(np.abs(np.mean(points, axis=0)) < 4 / math.sqrt(points.shape[0]))
    radii = np.sqrt(squares)
    assert abs(np.mean(radii <= 0.5 ** (1 / dim)) - 0.5) < 4 * 0.5 / math.sqrt(radii.size)


@pytest.mark.parametrize("kind", ["ball", "fixed", "shift"])
def test_theta_is_on_the_sphere_and_drawn_anew(kind: str) -> None:
    environment = world(contexts=kind)
    thetas = np.array([theta_of(environment, seed) for seed in range(400)])
    assert np.allclose(np.linalg.norm(thetas, axis=1), 2.0)
    assert np.all(np.abs(np.mean(thetas, axis=0)) < 4 * 2.0 / math.sqrt(3 * 400))
    assert np.allclose(np.mean(thetas**2, axis=0), 4.0 / 3.0, atol=0.25)


def test_assouad_is_the_lower_bounds_instance() -> None:
    environment = world(contexts="assouad", horizon=900)
    block = play(environment)
    axes = np.eye(3)
    assert np.array_equal(block.contexts[0], np.concatenate([axes, -axes]))
    theta = theta_of(environment, 0)
    assert np.allclose(np.abs(theta), 3 / math.sqrt(900))
    assert np.linalg.norm(theta) <= 2.0


def test_shift_confines_the_first_half_only() -> None:
    plain, narrow = play(world(horizon=401)), play(world(horizon=401, contexts="shift"))
    assert np.allclose(narrow.contexts[:200, :, -1], SHIFT_SCALE * plain.contexts[:200, :, -1])
    assert np.array_equal(narrow.contexts[200:], plain.contexts[200:])
    assert np.array_equal(narrow.contexts[..., :-1], plain.contexts[..., :-1])


def test_shift_does_not_depend_on_blocks() -> None:
    long = world(horizon=60_001, arms=2, contexts="shift")
    last = np.concatenate([block.contexts[:, :, -1] for block in long.blocks(np.random.default_rng(3))])
    assert np.max(np.abs(last[:30_000])) <= SHIFT_SCALE
    assert np.max(np.abs(last[30_000:30_200])) > 0.5


def test_fixed_repeats_one_arm_set() -> None:
    contexts = play(world(contexts="fixed")).contexts
    assert np.array_equal(contexts, np.broadcast_to(contexts[0], contexts.shape))
    assert not np.array_equal(contexts[0], play(world(contexts="fixed"), seed=1).contexts[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("link", list(LINKS))
def test_regret_is_the_gap_to_the_best_arm(kind: str, link: str) -> None:
    environment = world(contexts=kind, link=link, horizon=300)
    theta, block = theta_of(environment, 5), play(environment, seed=5)
    means = get_link(link).mean(block.contexts @ theta)
    assert np.allclose(block.regrets, np.max(means, axis=1, keepdims=True) - means)
    assert np.all(np.min(block.regrets, axis=1) == 0.0)
    assert np.all(np.linalg.norm(block.contexts, axis=2) <= 1.0 + 1e-12)
    assert np.min(block.rewards) >= 0.0
    assert np.max(block.rewards) <= environment.setting.largest_reward


@pytest.mark.parametrize("link", list(LINKS))
def test_rewards_have_the_mean_of_the_link(link: str) -> None:
    environment = world(contexts="fixed", link=link, horizon=40_000, theta_norm=1.5)
    theta = theta_of(environment, 7)
    block = play(environment, seed=7)
    expected = get_link(link).mean(block.contexts[0] @ theta)
    errors = np.std(block.rewards, axis=0) / math.sqrt(40_000)
    assert np.all(np.abs(np.mean(block.rewards, axis=0) - expected) < 4.5 * errors)
    assert np.all(np.abs(np.mean(block.rewards, axis=0) - (expected + 0.05)) > 3 * errors)


def test_the_largest_reward_is_the_links_unless_given() -> None:
    found = {link: world(link=link, theta_norm=1.5).setting.largest_reward for link in LINKS}
    assert found == {"logistic": 1.0, "probit": 1.0, "identity": 1.5, "log": 18.0}  # ceil(4.48 + 6 * 2.12)
    assert EnvironmentSetting(get_link("log"), 3, 6, 400, 1.5, reward_bound=5.0).largest_reward == 5.0


@pytest.mark.parametrize("link", list(LINKS))
def test_scores_are_flipped_only_where_means_would_be_negative(link: str) -> None:
    environment = world(link=link)
    theta = theta_of(environment, 6)
    scores = play(environment, seed=6).contexts @ theta
    assert bool(np.all(scores >= 0.0)) == (link == "identity")


def drawn_by_hand(kind: str, horizon: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Contexts and uniform numbers of the rewards, in the order in which they have always been drawn: d = 3, K = 40."""
    rng, contexts, uniforms = np.random.default_rng(seed), [], []
    rng.standard_normal(3) if kind != "assouad" else rng.choice([-1.0, 1.0], size=3)
    still: FloatArray | None = ball_by_hand(rng, 1) if kind == "fixed" else None
    if kind == "assouad":
        still = np.concatenate([np.eye(3), -np.eye(3)])[None]
    size = 131_072 // (3 * (6 if kind == "assouad" else 40))
    for start in range(0, horizon, size):
        rounds = min(size, horizon - start)
        contexts.append(ball_by_hand(rng, rounds) if still is None else np.repeat(still, rounds, axis=0))
        uniforms.append(rng.random(rounds))
    found = np.concatenate(contexts)
    if kind == "shift":
        found[: horizon // 2, :, -1] *= SHIFT_SCALE
    return found, np.concatenate(uniforms)


def ball_by_hand(rng: np.random.Generator, rounds: int) -> FloatArray:
    points = rng.standard_normal((rounds, 40, 3))
    radii = rng.random((rounds, 40)) ** (1 / 3)
    return np.asarray(points * (radii / np.linalg.norm(points, axis=2))[..., None])


@pytest.mark.parametrize("kind", KINDS)
def test_draws_keep_their_order(kind: str) -> None:
    """Rows of earlier releases can be had again: same seeds, same instances."""
    environment = world(contexts=kind, horizon=3_000, arms=40)
    contexts, uniforms = drawn_by_hand(kind, 3_000, seed=11)
    block, theta = play(environment, seed=11), theta_of(environment, 11)
    assert np.allclose(block.contexts, contexts, rtol=1e-12, atol=0.0)
    wins = uniforms[:, None] < get_link("logistic").mean(contexts @ theta)
    assert np.array_equal(block.rewards, wins.astype(float))


def test_same_seed_same_instance() -> None:
    first, second, other = play(world(), 2), play(world(), 2), play(world(), 3)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first.contexts, other.contexts)


def test_better_arms_never_earn_less_in_the_same_round() -> None:
    block = play(world(horizon=200))
    better = block.regrets[:, :, None] < block.regrets[:, None, :]
    less = block.rewards[:, :, None] < block.rewards[:, None, :]
    assert not np.any(better & less)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"contexts": "moon"}, "ball, fixed, shift, assouad"),
        ({"dim": 0}, "dim"),
        ({"horizon": 0}, "horizon"),
        ({"theta_norm": math.nan}, "theta_norm"),
        ({"theta_norm": 7.0, "link": "log"}, "theta_norm must be at most 6.55"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        world(**changes)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan])
def test_a_bad_reward_bound_is_refused(bound: float) -> None:
    with pytest.raises(InvalidInput, match="reward_bound"):
        EnvironmentSetting(get_link("probit"), 3, 6, 400, 2.0, reward_bound=bound)
