"""Runs are reproducible whatever the number of jobs, and resumable."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.experiments import results as journals
from tacit.experiments import runner
from tacit.experiments.results import CURVE_POINTS, Row, RunJournal, RunResult, curve_rounds, regret_curve, row
from tacit.experiments.runner import prepare, run_all, run_once
from tacit.experiments.spec import Experiment, for_each_epsilon

SPEC_FIELDS = {
    "policy",
    "epsilon",
    "delta",
    "link",
    "dim",
    "arms",
    "horizon",
    "theta_norm",
    "contexts",
    "runs",
    "seed",
    "regret_mean",
    "regret_std",
    "regret_se",
    "regret_curve",
    "regret_curves",
    "us_per_round",
    "epsilon_spent",
}


def experiment(**changes: object) -> Experiment:
    settings: dict[str, object] = {
        "policy": "random",
        "link": "probit",
        "dim": 3,
        "arms": 5,
        "horizon": 120,
        "theta_norm": 2.0,
    }
    return Experiment(**{**settings, **changes})  # type: ignore[arg-type]


def timeless(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in entry.items() if key != "us_per_round"} for entry in rows]


class Counter:
    """Counts runs, and presses Ctrl-C after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.runs: list[tuple[str, int]] = []
        self._stop_after = stop_after

    def __call__(self, chosen: Experiment, seed: int, run: int) -> RunResult:
        if len(self.runs) == self._stop_after:
            raise KeyboardInterrupt
        self.runs.append((chosen.contexts, run))
        return run_once(chosen, seed, run)


def test_rows_do_not_depend_on_jobs() -> None:
    chosen = [experiment(), experiment(contexts="fixed")]
    alone = run_all(chosen, runs=4, seed=3, jobs=1)
    together = run_all(chosen, runs=4, seed=3, jobs=2)
    assert timeless(alone) == timeless(together)
    assert timeless(alone) != timeless(run_all(chosen, runs=4, seed=4, jobs=1))


def test_rows_have_the_public_fields() -> None:
    (found,) = run_all([experiment()], runs=3, seed=0)
    assert set(found) >= SPEC_FIELDS
    assert len(found["regret_curve"]) == CURVE_POINTS
    assert found["regret_curve"][-1] == pytest.approx(found["regret_mean"])
    assert np.shape(found["regret_curves"]) == (3, CURVE_POINTS)
    assert [curve[-1] for curve in found["regret_curves"]] == found["regrets"]
    np.testing.assert_allclose(np.mean(found["regret_curves"], axis=0), found["regret_curve"])
    assert found["regret_se"] == pytest.approx(found["regret_std"] / math.sqrt(3))
    assert found["epsilon"] is None
    assert found["epsilon_spent"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_statistics_are_over_runs() -> None:
    results = [RunResult([0.5 * final, final], 1.0, spent) for final, spent in ((1.0, 0.5), (3.0, 0.7), (8.0, 0.6))]
    found = row(experiment(), results, seed=0)
    assert found["regret_mean"] == pytest.approx(4.0)
    assert found["regret_std"] == pytest.approx(np.std([1.0, 3.0, 8.0], ddof=1))
    assert found["regret_curve_se"][-1] == pytest.approx(found["regret_se"])
    assert found["regret_max"] == 8.0
    assert found["regret_median"] == 3.0
    assert found["regrets"] == [1.0, 3.0, 8.0]
    assert found["regret_curves"] == [[0.5, 1.0], [1.5, 3.0], [4.0, 8.0]]
    assert found["epsilon_spent"] == 0.7


@pytest.mark.parametrize("horizon", [7, 50, 120, 5_000])
def test_the_curve_comes_with_its_rounds(horizon: int) -> None:
    """A policy that always loses 1 has as much regret as rounds: the curve is its own x-axis."""
    rounds = curve_rounds(horizon)
    assert rounds.size == CURVE_POINTS
    assert regret_curve(np.ones(horizon)) == list(rounds)
    assert rounds[0] == max(1, round(horizon / CURVE_POINTS))
    assert rounds[-1] == horizon


def test_rows_have_regrets_in_the_order_of_runs() -> None:
    (found,) = run_all([experiment()], runs=3, seed=5, jobs=2)
    alone = [run_once(experiment(), 5, run).regret_curve[-1] for run in range(3)]
    assert found["regrets"] == alone
    assert found["regret_median"] == sorted(alone)[1]
    assert found["regret_rounds"][-1] == 120


def test_policies_are_told_the_bound_and_not_the_norm() -> None:
    told = experiment(policy="greedy-mle", theta_bound=7.0)
    assert told.make_policy(0).setting.theta_bound == 7.0
    assert experiment(policy="greedy-mle").make_policy(0).setting.theta_bound == 2.0
    assert told.environment() == experiment().environment()
    (found,) = run_all([told], runs=1, seed=0)
    assert (found["theta_norm"], found["theta_bound"]) == (2.0, 7.0)
    assert run_all([experiment()], runs=1, seed=0)[0]["theta_bound"] == 2.0


def test_digests_are_those_of_the_first_release() -> None:
    """Options that came later must not change what experiments without them are known by."""
    private = {"policy": "joint-glm", "contexts": "shift", "epsilon": 4.0, "delta": 0.02, "link": "logistic"}
    large = {"dim": 5, "arms": 20, "horizon": 15_000, "theta_norm": 3.5, "options": {"factorization": "tree"}}
    assert experiment().digest() == "3a25b8c7fe6b8a0f"
    assert experiment(**private, **large).digest() == "03f60ae737698701"
    assert experiment(theta_bound=3.0).digest() != experiment().digest()
    assert experiment(base_rate=0.1).digest() != experiment(base_rate=0.2).digest() != experiment().digest()


def test_regret_is_that_of_the_arms_played() -> None:
    """Two arms, random choices: the regret is that of a fair coin."""
    (found,) = run_all([experiment(arms=2, horizon=4_000)], runs=4, seed=1)
    gaps = []
    for run in range(4):
        world_seed = np.random.SeedSequence([1, run]).spawn(2)[0]
        environment = experiment(arms=2, horizon=4_000).environment()
        gaps.append(sum(float(block.regrets.sum()) for block in environment.blocks(np.random.default_rng(world_seed))))
    assert found["regret_mean"] == pytest.approx(np.mean(gaps) / 2, rel=0.05)


def test_a_journal_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, journal = [experiment(), experiment(contexts="shift")], tmp_path / "deep" / "journal.jsonl"
    first = Counter(stop_after=5)
    monkeypatch.setattr(runner, "run_once", first)
    partial = run_all(chosen, runs=4, seed=0, journal=journal)
    assert [entry["runs"] for entry in partial] == [3, 2]
    second = Counter()
    monkeypatch.setattr(runner, "run_once", second)
    complete = run_all(chosen, runs=4, seed=0, journal=journal)
    assert sorted(first.runs + second.runs) == sorted(("ball", i) for i in range(4)) + [("shift", i) for i in range(4)]
    monkeypatch.setattr(runner, "run_once", run_once)
    assert timeless(complete) == timeless(run_all(chosen, runs=4, seed=0))


def test_a_torn_line_costs_one_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal.jsonl"
    run_all([experiment()], runs=3, seed=0, journal=journal)
    text = journal.read_text()
    journal.write_text(text[: len(text) - 30])
    for missing in (1, 0):
        again = Counter()
        monkeypatch.setattr(runner, "run_once", again)
        run_all([experiment()], runs=3, seed=0, journal=journal)
        assert len(again.runs) == missing


@pytest.mark.parametrize(
    "change",
    [{"dim": 4}, {"theta_norm": 2.5}, {"theta_bound": 2.5}, {"options": {"noise": "none"}}, {"contexts": "fixed"}],
)
def test_a_journal_tells_experiments_apart(tmp_path: Path, change: dict[str, object]) -> None:
    journal = tmp_path / "journal.jsonl"
    run_all([experiment()], runs=1, seed=0, journal=journal)
    kept = RunJournal(journal)
    assert kept.find(experiment(), 0, 0) is not None
    assert kept.find(experiment(**change), 0, 0) is None
    assert kept.find(experiment(), 1, 0) is None
    assert kept.find(experiment(), 0, 1) is None


def test_a_journal_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal.jsonl"
    run_all([experiment()], runs=1, seed=0, journal=journal)
    monkeypatch.setattr(journals, "source_digest", lambda: "another version")
    assert RunJournal(journal).find(experiment(), 0, 0) is None


def test_bad_settings_stop_before_the_first_run() -> None:
    with pytest.raises(InvalidInput, match="does not know 'colour'"):
        prepare(experiment(options={"colour": "red"}))
    with pytest.raises(InvalidInput, match="contexts"):
        prepare(experiment(contexts="moon"))


def test_private_policies_run_for_each_epsilon() -> None:
    uniform, private = experiment(epsilon=3.0, delta=0.1), experiment(policy="joint-glm", delta=0.1)
    assert [(e.epsilon, e.delta) for e in for_each_epsilon(uniform, [1.0, 2.0])] == [(None, None)]
    assert [(e.label, e.delta) for e in for_each_epsilon(private, [1.0, math.inf])] == [
        ("joint-glm eps=1", 0.1),
        ("joint-glm eps=inf", 0.1),
    ]
