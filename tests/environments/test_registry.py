"""Environments of one's own: a function that yields rounds is all it takes, and mistakes in it are named."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tacit.environments import (
    ENVIRONMENTS,
    Block,
    Environment,
    EnvironmentSetting,
    Rounds,
    arms_of,
    make_environment,
    register_environment,
    registry,
)
from tacit.errors import InvalidInput
from tacit.glm.links import get_link


@pytest.fixture(autouse=True)
def forget_what_was_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests register in a copy."""
    kinds = dict(registry._KINDS)
    monkeypatch.setattr(registry, "_KINDS", kinds)
    monkeypatch.setattr(registry, "ENVIRONMENTS", kinds)


def world(contexts: str, **changes: Any) -> Environment:
    settings: dict[str, Any] = {"link": "logistic", "dim": 3, "arms": 4, "horizon": 100, "theta_norm": 2.0}
    return make_environment(contexts=contexts, **(settings | changes))


def yielding(*parts: Any, **changes: Any) -> Environment:
    """An environment that yields ``parts``, one after the other."""

    @register_environment("mine")
    def mine(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Any]:
        yield from parts

    return world("mine", **changes)


def play(environment: Environment, seed: int = 0) -> Block:
    blocks = list(environment.blocks(np.random.default_rng(seed)))
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def test_the_packages_own_kinds_are_registered_like_any_other() -> None:
    assert list(ENVIRONMENTS)[:4] == ["ball", "fixed", "shift", "assouad"]
    assert all(kind.summary for kind in ENVIRONMENTS.values())
    assert arms_of("assouad", 5, 20) == 10
    assert arms_of("ball", 5, 20) == 20


def test_a_kind_that_does_what_ball_does_gives_the_same_instances() -> None:
    @register_environment("mine")
    def mine(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
        theta = setting.draw_theta(rng)
        for rounds in setting.block_sizes():
            points = rng.standard_normal((rounds, setting.arms, setting.dim))
            radii = rng.random((rounds, setting.arms, 1)) ** (1 / setting.dim)
            yield setting.rounds(points * (radii / np.linalg.norm(points, axis=2, keepdims=True)), theta)

    own, ball = play(world("mine", horizon=20_000)), play(world("ball", horizon=20_000))
    assert np.allclose(own.contexts, ball.contexts, rtol=1e-12, atol=0.0)
    assert np.array_equal(own.rewards, ball.rewards)
    assert np.allclose(own.regrets, ball.regrets, rtol=0.0, atol=1e-12)


def test_rewards_and_regrets_are_made_from_means() -> None:
    means = np.tile([0.2, 0.9, 0.5, 0.9], (40_000, 1))
    block = play(yielding((np.zeros((40_000, 4, 3)), means), horizon=40_000))
    assert np.allclose(block.regrets, [0.7, 0.0, 0.4, 0.0])
    assert set(np.unique(block.rewards)) == {0.0, 1.0}
    errors = np.sqrt(means[0] * (1 - means[0]) / 40_000)
    assert np.all(np.abs(np.mean(block.rewards, axis=0) - means[0]) < 4 * errors)
    assert np.all(np.abs(np.mean(block.rewards, axis=0) - means[0] - 0.05) > 4 * errors)
    assert np.array_equal(block.rewards[:, 1], block.rewards[:, 3])  # one uniform number a round for all arms


def test_counts_are_drawn_for_the_log_link() -> None:
    block = play(yielding((np.zeros((20_000, 1, 3)), np.full((20_000, 1), 3.0)), link="log", horizon=20_000))
    assert abs(np.mean(block.rewards) - 3.0) < 4 * np.sqrt(3.0 / 20_000)
    assert abs(np.var(block.rewards) - 3.0) < 0.2  # that of a Poisson count, not of a coin


def test_blocks_of_ones_own_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(1)
    given = Block(rng.random((100, 4, 3)) / 2, rng.random((100, 4)), rng.random((100, 4)))
    played = play(yielding(given))
    assert all(np.array_equal(a, b) for a, b in zip(played, given, strict=True))


def test_an_endless_generator_is_cut_at_the_horizon() -> None:
    @register_environment("mine")
    def mine(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[tuple[Any, Any]]:
        while True:
            yield rng.random((30, setting.arms, setting.dim)) / 2, rng.random((30, setting.arms))

    assert [len(block.rewards) for block in world("mine").blocks(np.random.default_rng(0))] == [30, 30, 30, 10]


CONTEXTS, MEANS = np.zeros((100, 4, 3)), np.full((100, 4), 0.5)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "ended after 0 of 100 rounds"),
        ([(CONTEXTS[:60], MEANS[:60])], "ended after 60 of 100 rounds"),
        ([CONTEXTS], r"must yield \(contexts, means\) or Block"),
        ([(CONTEXTS,)], r"must yield \(contexts, means\) or Block"),
        ([(CONTEXTS[:, :, :2], MEANS)], r"contexts of shape \(rounds, arms, 3\), got \(100, 4, 2\)"),
        ([(CONTEXTS[0], MEANS)], r"contexts of shape \(rounds, arms, 3\), got \(4, 3\)"),
        ([(CONTEXTS[:0], MEANS[:0])], r"got \(0, 4, 3\)"),
        ([(CONTEXTS, MEANS[:, :3])], r"one number for each arm, shape \(100, 4\), got shape \(100, 3\)"),
        ([(CONTEXTS, MEANS + 0.6)], r"mean rewards in \[0, 1\]"),
        ([(CONTEXTS, MEANS - 0.6)], r"mean rewards in \[0, 1\]"),
        ([(CONTEXTS, MEANS * np.nan)], r"mean rewards in \[0, 1\]"),
    ],
)
def test_mistakes_are_named(parts: list[Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=f"the environment 'mine'.*{told}"):
        play(yielding(*parts))


def test_negative_means_of_the_identity_are_avoided_by_turning_arms_round() -> None:
    setting = EnvironmentSetting(get_link("identity"), 3, 4, 100, 2.0)
    contexts = np.random.default_rng(2).standard_normal((50, 4, 3)) / 4
    theta = np.array([0.0, 0.0, 2.0])
    rounds = setting.rounds(contexts.copy(), theta)
    assert np.allclose(rounds.means, np.abs(contexts @ theta))
    assert np.allclose(rounds.contexts @ theta, rounds.means)


def test_an_unknown_kind_lists_the_known_ones() -> None:
    yielding()
    with pytest.raises(InvalidInput, match=r"ball, fixed, shift, assouad.*, mine, not 'moon'.*--module"):
        world("moon")


def test_a_name_belongs_to_one_module() -> None:
    def theirs(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Any]:
        yield None

    with pytest.raises(InvalidInput, match=r"'ball' is registered by tacit\.environments\.synthetic already"):
        register_environment("ball")(theirs)
    yielding((CONTEXTS, MEANS))
    yielding((CONTEXTS, 0.5 * MEANS))  # the same module once more, as after a reload
    assert np.mean(play(world("mine")).rewards) < 0.4


@pytest.mark.parametrize("name", ["", "two words", "a,b", 3])
def test_names_can_be_typed_on_the_command_line(name: Any) -> None:
    with pytest.raises(InvalidInput, match="a word without blanks and commas"):
        register_environment(name)


def test_the_example_of_the_docstring_runs() -> None:
    found = doctest.testmod(registry)
    assert found.attempted > 3
    assert found.failed == 0
