"""The news site: its features, its clicks, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.environments import ENVIRONMENTS, Block, Environment, arms_of, make_environment
from tacit.environments.synthetic import BASE_RATE, readers
from tacit.errors import InvalidInput
from tacit.typing import FloatArray, IntArray

BASE = math.log(BASE_RATE / (1.0 - BASE_RATE))


def world(**changes: Any) -> Environment:
    settings: dict[str, Any] = {"link": "logistic", "dim": 25, "arms": 5, "horizon": 4_000, "theta_norm": 3.0}
    return make_environment(contexts="news", **(settings | changes))


def play(environment: Environment, seed: int) -> Block:
    blocks = list(environment.blocks(np.random.default_rng(seed)))
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def theta_of(environment: Environment, seed: int) -> FloatArray:
    """The deviations, from noiseless means."""
    rounds = next(iter(environment.kind.generate(np.random.default_rng(seed), environment.setting)))
    contexts, means = (np.asarray(part) for part in rounds)
    odds = np.log(means / (1.0 - means)) - BASE
    solution = np.linalg.lstsq(contexts.reshape(-1, contexts.shape[2]), odds.ravel(), rcond=None)[0]
    assert np.allclose(contexts @ solution, odds)  # the world is linear in its features
    return np.asarray(solution)


def best_categories(block: Block) -> IntArray:
    """The category of the best article of each round."""
    best = np.argmin(block.regrets, axis=1)
    features = block.contexts[np.arange(best.size), best].reshape(best.size, 5, -1)
    return np.asarray(np.argmax(features[:, :, 0], axis=1))


@pytest.mark.parametrize("dim", [5, 25])
def test_an_article_has_the_block_of_its_category(dim: int) -> None:
    contexts = play(world(dim=dim), 0).contexts.reshape(4_000, 5, 5, dim // 5)
    constants = contexts[:, :, :, 0]
    assert np.all(np.sort(constants, axis=2)[:, :, :4] == 0.0)  # one block for each article,
    assert np.all(np.sum(constants, axis=1) == (1.0 if dim == 5 else 0.5))  # one article for each category,
    first = np.bincount(np.argmax(constants[:, 0], axis=1), minlength=5)
    assert np.all(np.abs(first - 800) < 4 * np.sqrt(640))  # in random order
    assert not np.any(contexts[constants == 0.0])
    norms = np.linalg.norm(contexts.reshape(4_000, 5, dim), axis=2)
    assert norms.max() == pytest.approx(1.0, abs=1e-12)
    assert norms.max() <= 1.0 + 1e-12


@pytest.mark.parametrize(("dim", "length"), [(25, 3.0), (5, 1.08)])
def test_lengths_are_those_of_the_docstring(dim: int, length: float) -> None:
    thetas = [theta_of(world(dim=dim), seed) for seed in range(20)]
    assert [np.linalg.norm(theta) for theta in thetas] == pytest.approx([length] * 20, rel=2e-3)
    constants = np.zeros((5, dim // 5))
    constants[:, 0] = BASE if dim == 5 else 2.0 * BASE
    full = np.mean([np.linalg.norm(theta + constants.ravel()) for theta in thetas])
    assert full == pytest.approx(5.6 if dim == 5 else 11.3, rel=0.03)


@pytest.mark.parametrize("dim", [5, 25])
def test_clicks_are_rare_and_there_is_something_to_gain(dim: int) -> None:
    blocks = [play(world(dim=dim), seed) for seed in range(40)]
    by_chance = float(np.mean([block.rewards.mean() for block in blocks]))
    best = by_chance + float(np.mean([block.regrets.mean() for block in blocks]))
    assert 0.078 < by_chance < 0.092
    assert 0.125 < best < 0.145


def test_other_readers_want_other_articles() -> None:
    assert np.bincount(best_categories(play(world(), 3)), minlength=5).max() < 0.95 * 4_000
    assert np.unique(best_categories(play(world(dim=5), 3))).size == 1


def test_readers_are_never_young_and_old() -> None:
    found = readers(np.random.default_rng(0), 20_000)
    assert np.max(found[:, 1] + found[:, 2]) == 1.0
    assert np.mean(found, axis=0) == pytest.approx([1.0, 0.3, 0.3, 0.6, 0.4], abs=0.015)


def test_it_has_five_arms_and_a_summary() -> None:
    assert arms_of("news", 25, 20) == 5
    assert "8% clicks" in ENVIRONMENTS["news"].summary
    assert play(world(arms=20), 0).rewards.shape == (4_000, 5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"dim": 6}, r"dim 5 .* or 25 .*, not 6"), ({"link": "probit"}, "logistic link, not of 'probit'")],
)
def test_other_settings_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        world(**changes)
