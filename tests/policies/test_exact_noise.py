"""Exact noise: what becomes public is a function of raw sum plus noise alone, bit for bit, in every policy with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.policies.baselines.adaprivate_ts import NoisyBatch
from tacit.policies.baselines.ldp_linucb import LdpLinUcb
from tacit.policies.baselines.local_glm import LocalGLM
from tacit.policies.log import Publisher
from tacit.policies.registry import make_policy
from tacit.privacy import continual
from tacit.privacy.noise import ExactNoise
from tacit.typing import FloatArray
from tests.mutants import exclusions
from tests.mutants.exclusions import KINDS, count_exclusions
from tests.mutants.wrong_order import PullBeforeSum

STREAMED = ("stream-glm", "joint-linucb", "joint-glm")
GRADIENTS = [kind for kind in KINDS if kind.startswith("gradient")]
GRID = ExactNoise().grid or 0.0


def on_grid(values: FloatArray) -> bool:
    return bool(np.all(values / GRID == np.rint(values / GRID)))


def make(name: str, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "dim": 3,
        "horizon": 200,
        "theta_bound": 2.0,
        "epsilon": 4.0,
        "delta": 1e-5,
        "noise": "exact",
    }
    return make_policy(name, **(arguments | changes))


def rounds(count: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((count, 4, 3))
    return contexts / np.linalg.norm(contexts, axis=2, keepdims=True), rng.random((count, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_no_release_excludes_a_neighbour(kind: str) -> None:
    found = count_exclusions(kind, 200, seed=1)
    assert (found.excluded, found.fields) == (0, frozenset())
    assert found.moved == found.redraws == 200


@pytest.mark.parametrize("kind", GRADIENTS)
def test_a_pull_that_is_added_to_the_noise_first_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redraw shows it about once in a hundred, another one on each processor: that none of 6,000 does is a chance of
    far less than 1e-9."""
    for module, name, value in PullBeforeSum().changes():
        monkeypatch.setattr(module, name, value)
    tried = (count_exclusions(kind, 200, seed=seed) for seed in range(2, 32))
    found = next((each for each in tried if each.excluded), None)
    assert found is not None
    assert found.excluded < found.redraws
    assert found.fields == {"explore.theta" if "theta_o" in kind else "exploit.theta"}


def test_contributions_off_the_grid_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    open_stream = continual.ContinualRelease.open

    def open_without_rounding(plan: continual.ContinualRelease) -> continual.Stream:
        return open_stream(plan)._replace(constants=continual.MechanismConstants(grid=0.0))

    def without_rounding(constants: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda policy: constants(policy)._replace(grid=0.0)

    monkeypatch.setattr(continual.ContinualRelease, "open", open_without_rounding)
    for local in (LocalGLM, LdpLinUcb):
        monkeypatch.setattr(local, "_constants", without_rounding(local._constants))
    monkeypatch.setattr(NoisyBatch, "grid", 0.0)
    for kind in KINDS:
        if kind.endswith("tree") or kind.startswith(("report", "batch")):
            found = count_exclusions(kind, 8, seed=3)
            assert found.excluded == 8
            assert exclusions.OFF_GRID in found.fields


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leaf of stream-glm"):
        count_exclusions("leaf", 10, seed=1)
    with pytest.raises(InvalidInput, match="redraws"):
        count_exclusions(KINDS[0], 0, seed=1)


@pytest.mark.parametrize("horizon", [300, None])
@pytest.mark.parametrize("name", STREAMED)
def test_trees_hold_multiples_of_the_grid(name: str, horizon: int | None) -> None:
    """Raw sums, noisy nodes and all that is released; without a horizon up to the second epoch."""
    policy = make(name, horizon=horizon, factorization="tree")
    contexts, rewards = rounds(250 if horizon else 1_100)
    policy.play(contexts, rewards)
    stream = policy.state.stream
    tree = stream.mechanism
    for values in (stream.leaf, tree.sums, tree.noisy, tree.carried, stream.released):
        assert on_grid(values)
    assert horizon or np.any(tree.carried)
    used = [level for level in range(40) if int(stream.closed[()]) >> level & 1]
    assert np.array_equal(stream.released, tree.carried + np.sum(tree.noisy[used], axis=0))
    assert np.all(tree.noisy[used] != tree.sums[used])


class Watched(Publisher):
    """Keeps sums, noise and what is released of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, FloatArray, FloatArray, FloatArray]] = []

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        released = super().vector(kind, exact, noise, sd)
        self.seen.append((kind, exact.copy(), noise.copy(), released.copy()))
        return released


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("joint-glm", "tuned"),
        ("joint-glm", "theory"),
        ("local-glm", None),
        ("ldp-linucb", None),
        ("adaprivate-ts", None),
    ],
)
def test_released_vectors_are_multiples_of_the_grid(name: str, profile: str | None) -> None:
    policy = make(name, **({"profile": profile} if profile else {}))
    policy.publisher = watched = Watched()
    contexts, rewards = rounds(40)
    for arms, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms)
        policy.update(decision, float(outcome[decision.arm]))
    if profile:
        policy._refresh(policy.state.explore, policy.state.exploit)
        policy._refresh(policy.state.exploit, policy.state.explore)
    kinds = {"theta_o", "theta_tau"} if profile else {"batch" if name == "adaprivate-ts" else "report"}
    assert {kind.split()[-1] for kind, *_ in watched.seen} == kinds
    for _, exact, noise, released in watched.seen:
        assert on_grid(exact)
        assert on_grid(noise)
        assert np.any(noise)
        assert np.array_equal(released, exact + noise)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "joint-linucb",
            {"reward_bound": 1e5, "reward_weight": 1.0, "horizon": 1_000_000, "link": "log", "factorization": "tree"},
        ),
        ("joint-glm", {"link": "log", "theta_bound": 8.0, "horizon": 10_000_000}),
    ],
)
def test_sums_that_floats_could_not_hold_exactly_are_refused(name: str, options: dict[str, Any]) -> None:
    setting: dict[str, Any] = {"dim": 2, "epsilon": 1.0, "delta": 1e-6, "theta_bound": 2.0, "noise": "exact"}
    with pytest.raises(InvalidInput, match="stop being exact"):
        make_policy(name, **(setting | options))
