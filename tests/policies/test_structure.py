"""Structure in `stream-glm`: what cannot be nonzero together is not released, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.features import Category, Number, Schema
from tacit.policies.state import flatten, size_in_bytes
from tacit.policies.stream import StreamGLM
from tacit.policies.stream.steps import choose, learn
from tacit.typing import FloatArray


def make(**changes: Any) -> StreamGLM:
    arguments: dict[str, Any] = {
        "dim": 6,
        "blocks": 2,
        "epsilon": 2.0,
        "delta": 1e-5,
        "theta_bound": 3.0,
        "seed": 5,
    }
    return StreamGLM(**(arguments | changes))


def block_rows(rng: np.random.Generator, rounds: int, arms: int = 4, blocks: int = 2, size: int = 3) -> FloatArray:
    """Arms of norm at most 1, each within one block."""
    rows = np.zeros((rounds, arms, blocks, size))
    values = rng.standard_normal((rounds, arms, size))
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    chosen = rng.integers(blocks, size=(rounds, arms))
    np.put_along_axis(rows, chosen[:, :, None, None], values[:, :, None, :], axis=2)
    return rows.reshape(rounds, arms, blocks * size)


def test_only_allowed_entries_are_released() -> None:
    policy, dense = make(), make(blocks=None)
    assert policy.state.compact
    assert not dense.state.compact
    assert policy.state.stream.leaf.size == 2 * 6 + 6
    assert dense.state.stream.leaf.size == 21 + 6


def test_a_row_touches_the_entries_of_its_own_block_alone() -> None:
    policy, x = make(), np.zeros((1, 6))
    x[0, 3:] = [0.5, 0.0, -0.5]
    policy.update(policy.select(x), 1.0)
    touched = set(np.flatnonzero(policy.state.stream.leaf).tolist())
    blocks = policy.state.blocks
    products = {int(blocks.table[blocks.lines[i] + blocks.local[j]]) for i in (3, 5) for j in (3, 5)}
    assert touched == products | {12 + 3, 12 + 5}


def test_a_row_that_breaks_the_promise_has_its_forbidden_products_left_out() -> None:
    """Privacy does not rest on the promise: whatever a memo holds, what enters the sum is within the charged bound."""
    policy = make()
    width = policy._row_size // 2
    memo = np.zeros(policy._memo_size)
    memo[:width], memo[width : 2 * width] = [0.6, 0.6, 0.5], [0.0, 3.0, 4.0]
    learn(policy.state, memo[np.newaxis], np.ones(1))
    assert np.linalg.norm(policy.state.stream.leaf) <= policy._row.row_norm
    assert np.count_nonzero(policy.state.stream.leaf[:12]) == 4  # three squares, and the product within a block


def test_replaced_rows_move_the_leaf_by_at_most_the_charged_bound() -> None:
    policy, rng, worst = make(dim=4), np.random.default_rng(7), 0.0
    for _ in range(1500):
        theta = rng.standard_normal(4)
        theta[2:] *= 0.01
        policy.state.theta[:] = 3.0 * theta / np.linalg.norm(theta)
        leaves = []
        for rows in policy.arm_form.rounds(block_rows(rng, 2, 1, 2, 2)):
            memos = np.empty((1, policy._memo_size))
            choose(policy.state, rows[np.newaxis], np.empty((1, 0)), memos)
            policy.state.stream.leaf[:] = 0.0
            learn(policy.state, memos, rng.integers(2, size=1).astype(np.float64))
            leaves.append(policy.state.stream.leaf.copy())
        worst = max(worst, float(np.linalg.norm(leaves[0] - leaves[1])))
    assert 0.8 * policy._row.row_bound < worst <= policy._row.row_bound


def test_without_noise_blocks_learn_what_the_dense_stream_learns() -> None:
    """H is block diagonal by itself then; shrinkage apart, both solve the same equations."""
    rng = np.random.default_rng(3)
    rows, rewards = block_rows(rng, 600), rng.integers(2, size=(600, 4)).astype(float)
    shared: dict[str, Any] = {"epsilon": np.inf, "delta": None, "shrinkage": "none", "scale": 0.4, "width": 0.0}
    policies = [make(blocks=blocks, noise_width=0.0, **shared) for blocks in (2, None)]
    for policy in policies:
        policy.play(rows, rewards)
    assert np.allclose(policies[0].estimate, policies[1].estimate, atol=1e-6)
    squares = policies[0].state.posterior.reshape(2, 3, 3)
    for owner in range(2):
        part = slice(3 * owner, 3 * owner + 3)
        assert np.allclose(squares[owner], policies[1].state.posterior[part, part], atol=1e-6)


@pytest.mark.parametrize("factorization", ["geometric", "tree"])
def test_select_and_update_are_what_play_does(factorization: str) -> None:
    rng = np.random.default_rng(4)
    rows, rewards = block_rows(rng, 120), rng.integers(2, size=(120, 4)).astype(float)
    whole, single = (make(factorization=factorization, horizon=200) for _ in range(2))
    arms = whole.play(rows, rewards)
    for t in range(120):
        decision = single.select(rows[t])
        assert decision.arm == arms[t]
        single.update(decision, float(rewards[t, decision.arm]))
    assert whole.public_fingerprint() == single.public_fingerprint()


def test_constants_are_not_saved_and_come_back_from_the_configuration() -> None:
    policy, rng = make(), np.random.default_rng(5)
    policy.play(block_rows(rng, 50), np.ones((50, 4)))
    assert not [path for path in flatten(policy.state) if path.startswith("blocks.")]
    restored = tacit.restore(policy.snapshot())
    assert restored.fingerprint() == policy.fingerprint()
    assert np.array_equal(restored.state.blocks.table, policy.state.blocks.table)
    further = block_rows(rng, 50)
    assert np.array_equal(restored.play(further, np.ones((50, 4))), policy.play(further, np.ones((50, 4))))


def test_rows_outside_of_one_block_are_refused_and_change_nothing() -> None:
    policy = make()
    good, bad = np.zeros((2, 6)), np.zeros((2, 6))
    good[:, 0] = 0.5
    bad[0, 0] = bad[1, 2] = bad[1, 3] = 0.5
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match="within one block"):
        policy.select(bad)
    assert policy.fingerprint() == before
    answers = policy.select_batch(np.stack([bad, good, bad]))
    assert [isinstance(answer, InvalidInput) for answer in answers] == [True, False, True]
    with pytest.raises(InvalidInput, match="multiple of blocks=4"):
        make(blocks=4)


def test_many_arms_with_their_own_features_fit_a_small_state() -> None:
    schema = Schema(
        user=[Number(f"f{i}", -1, 1) for i in range(9)],
        arm=[Category("arm", [str(i) for i in range(100)])],
        per_arm="arm",
    )
    policy = tacit.make_policy(
        "stream-glm", features=schema, epsilon=1.0, delta=1e-6, theta_bound=6.0, seed=1, scale=0.4
    )
    assert schema.dim == 1000
    user, arms = {f"f{i}": 0.5 for i in range(9)}, schema.catalogue([{"arm": str(i)} for i in range(100)])
    decisions = [policy.select(user=user, arms=arms) for _ in range(100)]
    assert size_in_bytes(policy.state) < 1_000_000
    memos = [policy._pending.memo(decision.id) for decision in decisions]
    assert all(memo.size == 21 for memo in memos)  # ten values, ten positions and a score, not a thousand features
    for decision in decisions:
        policy.update(decision, 1.0)
