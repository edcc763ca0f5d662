"""Runs are reproducible whatever the number of jobs, and resumable."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.experiments import runner
from tacit.experiments.runner import CURVE_POINTS, Journal, Row, RunResult, prepare, row, run_all, run_once
from tacit.experiments.spec import Experiment, experiments_for

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
    assert found["epsilon_spent"] == 0.7


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
    "change", [{"dim": 4}, {"theta_norm": 2.5}, {"options": {"noise": "none"}}, {"contexts": "fixed"}]
)
def test_a_journal_tells_experiments_apart(tmp_path: Path, change: dict[str, object]) -> None:
    journal = tmp_path / "journal.jsonl"
    run_all([experiment()], runs=1, seed=0, journal=journal)
    kept = Journal(journal)
    assert kept.find(experiment(), 0, 0) is not None
    assert kept.find(experiment(**change), 0, 0) is None
    assert kept.find(experiment(), 1, 0) is None
    assert kept.find(experiment(), 0, 1) is None


def test_a_journal_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal.jsonl"
    run_all([experiment()], runs=1, seed=0, journal=journal)
    monkeypatch.setattr(runner, "source_digest", lambda: "another version")
    assert Journal(journal).find(experiment(), 0, 0) is None


def test_bad_settings_stop_before_the_first_run() -> None:
    with pytest.raises(InvalidInput, match="no options"):
        prepare(experiment(options={"colour": "red"}))
    with pytest.raises(InvalidInput, match="contexts"):
        prepare(experiment(contexts="moon"))


def test_private_policies_run_for_each_epsilon() -> None:
    setting = {"link": "probit", "dim": 3, "arms": 5, "horizon": 100, "theta_norm": 2.0}
    assert [e.epsilon for e in experiments_for("random", [1.0, 2.0], 0.1, setting)] == [None]
    assert [e.label for e in experiments_for("joint-glm", [1.0, math.inf], 0.1, setting)] == [
        "joint-glm eps=1",
        "joint-glm eps=inf",
    ]
