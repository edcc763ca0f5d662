"""Rewards that come later: in the order of their arrival, the same for all policies, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.experiments.test_runner import experiment, timeless

import tacit
from tacit.environments import NEVER, Block, EnvironmentSetting
from tacit.environments.arrivals import ArrivalKind
from tacit.errors import InvalidInput
from tacit.experiments.results import RunResult, row, with_gains
from tacit.experiments.runner import Delivery, prepare, run_all, run_once
from tacit.experiments.tables import simulation
from tacit.glm.links import get_link

SETTING = EnvironmentSetting(get_link("logistic"), 2, 2, 8, 1.0)


class Diary:
    """Stands for a policy that plays arm 0, and writes down what happens to it."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.arm_form = self
        self._made = 0

    def rounds(self, contexts: Any) -> Any:
        return contexts

    def select_admitted(self, contexts: Any) -> tacit.Decision:
        self.events.append("decides")
        self._made += 1
        return tacit.Decision(0, self._made - 1)

    def update(self, decision: int, reward: float) -> None:
        self.events.append((decision, reward))


def played(delays: list[int], blocks: int = 1) -> list[Any]:
    diary, table = Diary(), np.array(delays)[:, None] * np.ones((1, 2), dtype=np.int64)
    given = iter(np.split(table, blocks))
    kind = ArrivalKind("mine", lambda rng, rewards, setting: next(given), "")
    delivery = Delivery(diary, kind, SETTING, np.random.default_rng(0))  # type: ignore[arg-type]
    for part in np.split(np.arange(len(delays), dtype=np.float64) / 10, blocks):
        rewards = part[:, None] * np.ones((1, 2))
        assert list(delivery.play(Block(np.zeros((len(part), 2, 2)), rewards, rewards))) == [0] * len(part)
    return diary.events


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_rewards_come_before_the_decision_at_which_they_are_due(blocks: int) -> None:
    assert played([1, 4, NEVER, 2, 9, 1], blocks) == [
        "decides",
        (0, 0.0),
        "decides",
        "decides",
        "decides",
        "decides",
        (1, 0.1),  # both are due at number 5: the older one first
        (3, 0.3),
        "decides",  # what is due later is dropped
    ]


def test_delays_of_one_are_immediate_rewards() -> None:
    assert played([1, 1, 1]) == ["decides", (0, 0.0), "decides", (1, 0.1), "decides"]


def test_rows_without_delays_are_what_they_were() -> None:
    """The regret is that of 0.1.0, when rewards could not be late."""
    chosen = [experiment(rewards="now"), experiment()]
    first, second = timeless(run_all(chosen, runs=3, seed=3))
    assert first == second
    assert "rewards" not in first
    assert chosen[0].digest() == experiment().digest() == "3a25b8c7fe6b8a0f"
    assert run_once(experiment(), 0, 0).regret_curve[-1] == pytest.approx(36.86949291399431, rel=1e-12)


def test_late_rows_say_so_and_have_digests_of_their_own() -> None:
    rows = run_all([experiment(rewards="late")], runs=2, seed=0)
    assert rows[0]["rewards"] == "late"
    assert len({experiment(rewards=kind).digest() for kind in ("now", "late", "held")}) == 3
    assert "contexts ball, rewards late" in simulation(rows).title


def test_instances_are_the_same_however_rewards_come() -> None:
    rows = run_all([experiment(rewards=kind) for kind in ("now", "late", "held")], runs=2, seed=0)
    assert rows[0]["regrets"] == rows[1]["regrets"] == rows[2]["regrets"]  # of random arms, which nothing is told


def test_late_rows_do_not_depend_on_jobs() -> None:
    chosen = [experiment(policy="greedy-mle", rewards="late", horizon=400), experiment(rewards="late", horizon=400)]
    assert timeless(run_all(chosen, runs=2, seed=1)) == timeless(run_all(chosen, runs=2, seed=1, jobs=2))


def test_rewards_held_back_are_the_same_as_a_policy_that_waits() -> None:
    """`held`, and `reward_age` with rewards at once: the leaf that a row enters is the same."""
    private: dict[str, Any] = {"policy": "stream-glm", "horizon": 1_300, "epsilon": 4.0, "delta": 1e-3}
    tree = {"factorization": "tree"}  # geometric leaves would also follow the clock of what contributes
    held = run_once(experiment(**private, rewards="held", options=tree), 0, 0)
    waits = run_once(experiment(**private, options=tree | {"reward_age": 1_000}), 0, 0)
    both = run_once(experiment(**private, rewards="held", options=tree | {"reward_age": 1_000}), 0, 0)
    assert held.regret_curve == waits.regret_curve == both.regret_curve
    early = run_once(experiment(**private), 0, 0)
    assert early.regret_curve[-1] < held.regret_curve[-1]


def test_rewards_that_a_policy_does_not_wait_for_are_lost() -> None:
    impatient = experiment(policy="greedy-mle", rewards="held", horizon=1_200, options={"reward_age": 20})
    assert run_once(impatient, 0, 0).regret_curve[-1] > 0.0


def test_unknown_ways_are_refused_before_the_first_run() -> None:
    with pytest.raises(InvalidInput, match=r"now, late, held, not 'soon'"):
        prepare(experiment(rewards="soon"), rounds=0)


def _row(final: float, **changes: Any) -> dict[str, Any]:
    return row(experiment(**changes), [RunResult([final], 1.0, None)], 0)


def test_gain_is_what_is_gained_over_random_in_the_same_world() -> None:
    rows = with_gains([_row(25.0, policy="greedy-mle"), _row(100.0), _row(50.0, policy="gloc", contexts="fixed")])
    assert [found.get("gain") for found in rows] == [0.75, 0.0, None]
    late = with_gains([_row(25.0, policy="greedy-mle", rewards="late"), _row(100.0)])
    assert "gain" not in late[0]
    assert with_gains([_row(0.0)]) == [_row(0.0)]


def test_tables_have_a_column_for_it_where_random_was_played() -> None:
    shown = simulation(with_gains([_row(25.0, policy="greedy-mle"), _row(100.0)]))
    assert shown.columns[4] == "gain"
    assert [cells[4] for cells in shown.rows] == ["0.75", "0.00"]
    assert any(note.startswith("gain:") for note in shown.notes)
    assert "gain" not in simulation([_row(25.0, policy="greedy-mle")]).columns
