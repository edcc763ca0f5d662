"""Costs are those of the policy alone, growth is fitted, single decisions and batches agree."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.environments import Block, Environment
from tacit.experiments import speed
from tacit.experiments.results import Row
from tacit.experiments.runner import play_once
from tacit.experiments.spec import Experiment
from tacit.policies.decision import Decision
from tacit.policies.policy import Policy
from tacit.typing import FloatArray, IntArray


def experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "policy": "stream-glm",
        "link": "logistic",
        "dim": 3,
        "arms": 8,
        "horizon": 900,
        "theta_norm": 2.0,
        "epsilon": 4.0,
        "delta": 0.01,
    }
    return Experiment(**(settings | changes))


def measured(**changes: Any) -> Row:
    base: Row = {
        "policy": "stream-glm",
        "epsilon": 4.0,
        "link": "logistic",
        "dim": 5,
        "arms": 20,
        "horizon": 10_000,
        "rounds": 10_000,
        "us_per_round": 8.0,
        "environment_us": 4.0,
        "ratio": 2.0,
        "state_bytes": 4096,
        "select_p50_us": 20.0,
        "select_p99_us": 50.0,
        "update_p50_us": 5.0,
        "update_p99_us": 9.0,
    }
    return base | changes


def test_a_measurement_has_cost_environment_latency_and_memory() -> None:
    row = speed.measure(experiment(horizon=300), repeats=2)
    assert row["environment_us"] > 0.0
    assert row["ratio"] == pytest.approx(row["us_per_round"] / row["environment_us"])
    assert row["rounds"] == 300
    assert row["state_bytes"] > 0
    assert row["process_peak_bytes"] > row["state_bytes"]


def test_the_environment_does_not_count_as_playing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def drawn(self: Environment, rng: np.random.Generator) -> Iterator[Block]:
        for _ in range(3):
            clock[0] += 100.0
            yield Block(np.zeros((10, 8, 3)), np.zeros((10, 8)), np.zeros((10, 8)))

    def played(self: Policy, contexts: FloatArray, rewards: FloatArray) -> IntArray:
        clock[0] += 1.0
        return np.zeros(len(contexts), dtype=np.int64)

    monkeypatch.setattr(Environment, "blocks", drawn)
    monkeypatch.setattr(Policy, "play", played)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert speed.whole_run(experiment())[:3] == (1e5, 1e7, 30)
    assert play_once(experiment(horizon=30), 0, 0).us_per_round == 1e5


def test_histories_of_earlier_versions_are_read(tmp_path: Path) -> None:
    old = measured(us_per_round=9.0, floor_us=4.0)
    noisy = measured(dim=20, us_per_round=3.9, floor_us=4.0)
    speed.remember([old, noisy], tmp_path / "speed.jsonl")
    assert speed.recall(tmp_path / "speed.jsonl") == {speed.identity(old): 5.0}
    speed.remember([measured(us_per_round=7.0)], tmp_path / "speed.jsonl")
    assert speed.recall(tmp_path / "speed.jsonl") == {speed.identity(old): 7.0}


def test_a_slow_run_is_cut_and_says_so() -> None:
    run = speed.whole_run(experiment(dim=5, arms=100, horizon=1_500), seconds=0.0)
    assert 0 < run.rounds < 1_500
    shown = speed.table([measured(rounds=262)], {})
    assert "262 of 10,000" in shown.rows[0]


def test_growth_is_told() -> None:
    rows = [measured(dim=dim, us_per_round=3.0 * dim**2) for dim in (3, 5, 10, 50)]
    assert any("d^2.00, d = 5 to 50" in note for note in speed.table(rows, {}).notes)
    rows = [measured(), measured(horizon=1_000_000, rounds=1_000_000, us_per_round=10.0, state_bytes=8192)]
    (note,) = speed.growth(rows)
    assert "T = 1,000,000 is 1.25 times that at T = 10,000, state 2.00 times" in note
    assert speed.growth([measured()]) == []
    assert speed.growth([measured(), measured(dim=50, rounds=262), measured(horizon=20_000, rounds=262)]) == []


def test_read_only_and_strange_arrays_are_chosen_from_alike() -> None:
    """Compiled steps are called without a look at types: whatever comes in must have been made ordinary before."""
    contexts = next(experiment().environment().blocks(np.random.default_rng(1))).contexts[0]
    frozen = contexts.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"x" + contexts.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(contexts.shape)
    assert not unaligned.flags.aligned
    forms = (contexts, frozen, unaligned, np.asfortranarray(contexts), contexts.tolist(), contexts[:, ::-1][:, ::-1])
    chosen = [experiment().make_policy(2).select(form).arm for form in forms]
    assert len(set(chosen)) == 1


def test_a_copied_policy_goes_its_own_way() -> None:
    block = next(experiment().environment().blocks(np.random.default_rng(1)))
    first = experiment(policy="greedy-mle", epsilon=None, delta=None).make_policy(2)  # private ones refuse to be copied
    first.update(first.select(block.contexts[0]), 1.0)
    before = first.fingerprint()
    second = copy.deepcopy(first)
    second.update(second.select(block.contexts[1]), 1.0)
    assert first.fingerprint() == before
    assert second.fingerprint() != before


def test_batches_and_single_decisions_agree() -> None:
    block = next(experiment().environment().blocks(np.random.default_rng(1)))
    for user in range(5):
        batch, single = (experiment().make_policy(4) for _ in range(2))
        together = batch.select_batch(block.contexts[:5])
        decisions = [answer for answer in together if isinstance(answer, Decision)]
        assert [decision.id for decision in decisions] == list(range(5))
        assert single.select(block.contexts[user]).arm == decisions[user].arm
