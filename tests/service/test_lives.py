"""A person's epsilon over several lives: a restore says what it costs, and reports count the lives.

`findings` plays a person through the lives of a policy that counts users, and compares what she is in with what is
reported.  Faults that were made on purpose must be found by it: the worst of them restores counters without a word,
which is what releases before this one did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.service import backup, host
from tacit.service.backup import back_up_store, read_backup, restore_store
from tacit.service.deployment import Deployment
from tacit.service.http.reads import total
from tacit.service.published import publish
from tests.service.hosting import Bench
from tests.service.parts import Clock, FaultyStore, quick_store

ROUNDS = 2
SERVED: dict[str, Any] = {
    "user_level": True,
    "rounds_per_user": ROUNDS,
    "reward_wait": 10.0,
    "hold": False,
    "epsilon": 1.0,
    "delta": 1e-6,
}


class Life(Bench):
    """A life that goes on from a store which was restored."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.store = FaultyStore(quick_store(folder))
        self.learned, self._processes = [], 1
        self._open(self.store)


def come(bench: Bench, label: str, times: int = ROUNDS + 1) -> int:
    """The person decides so often and is rewarded; how many rows of hers entered the sums."""
    bench.learned.clear()
    for number in range(times):
        bench.arm(f"{label} {number}", user="she")
        bench.reward(f"{label} {number}", 1.0)
    bench.arm(f"{label} last", user="another")  # with whom rewards contribute that came before
    return len(bench.learned)


def saved(bench: Bench, file: Path) -> Path:
    """A backup of a life that goes on."""
    back_up_store(bench.store, file)
    bench.crash()
    return file


@dataclass
class Played:
    """What happened to one person, and what was said of it."""

    rows: list[int]
    reports: list[dict[str, Any]]
    totals: list[float | None]
    silent: int
    """Restores that were carried out though nobody had said anything."""


def play(folder: Path, lives: int) -> Played:
    """Every life goes on after its backup was written, and the next one begins from that."""
    bench: Bench = Bench(folder / "life 1", "stream-glm", **SERVED)
    played = Played([], [], [], 0)
    for life in range(1, lives + 1):
        file = saved(bench, folder / f"backup {life}")
        played.rows.append(come(bench, f"life {life}"))
        played.reports.append(dict(bench.host.published.privacy))
        played.totals.append(total({"p": bench.served.host.published}).mu)
        bench.close()
        if life < lives:
            bench = _next(file, folder / f"life {life + 1}", played)
    return played


def _next(file: Path, folder: Path, played: Played) -> Bench:
    store = quick_store(folder)
    with suppress(InvalidInput):
        restore_store(file, store)
        played.silent += 1
    if not store.journals():
        restore_store(file, store, accept_user_cost=True)
    store.close()
    return Life(folder)


def findings(folder: Path, lives: int = 3) -> list[str]:
    """What is wrong with what a person is told after so many lives; nothing, if all is well."""
    played = play(folder, lives)
    found = ["counters were restored without a word"] if played.silent else []
    for life, report in enumerate(played.reports, start=1):
        spent = math.sqrt(sum((rows * report["spent_mu"]) ** 2 for rows in played.rows[:life]))
        if played.rows[:life] != [ROUNDS] * life:
            found.append(f"life {life}: {played.rows[:life]} rows count")
        for said in (report["mu_across_lives"], played.totals[life - 1]):
            if said is None or said < spent * (1.0 - 1e-9):
                found.append(f"life {life}: mu = {spent:g} was spent on a person, {said} is reported")
        if life > 1 and not any(f"rows in {life} lives" in warning for warning in report["warnings"]):
            found.append(f"life {life}: nothing warns of it")
    return found


def test_what_a_person_is_told_over_several_lives(tmp_path: Path) -> None:
    assert findings(tmp_path) == []


def _says_nothing(policies: object, *, accepted: bool) -> None:
    return


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "counters restored without a word": lambda patch: (
        patch.setattr(backup, "_refuse_silent_cost", _says_nothing),
        patch.setattr(backup, "_another_life", lambda kept: kept),
    )[0],
    "restores are not refused": lambda patch: patch.setattr(backup, "_refuse_silent_cost", _says_nothing),
    "lives are not counted": lambda patch: patch.setattr(backup, "_another_life", lambda kept: kept),
    "backups forget lives": lambda patch: patch.setattr(backup, "_KEPT_NOTES", ("users", "mode")),
    "reports leave lives out": lambda patch: patch.setattr(
        host, "publish", lambda *given, lives: partial(publish, *given)()
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    found = findings(tmp_path)
    assert found
    if "without a word" in fault:
        assert found[0] == "counters were restored without a word"
        assert any("was spent on a person" in each for each in found)


def test_figures_of_two_and_three_lives(tmp_path: Path) -> None:
    """Those that a reader of the code worked out by hand: epsilon 1.45 and 1.81 at (1, 1e-6)."""
    played = play(tmp_path, 3)
    assert [round(report["epsilon_across_lives"], 2) for report in played.reports] == [1.0, 1.45, 1.81]
    assert [report["lives"] for report in played.reports] == [1, 2, 3]
    assert [report["target_epsilon"] for report in played.reports] == [1.0] * 3
    last = played.reports[-1]
    assert last["mu_across_lives"] == pytest.approx(math.sqrt(3.0) * ROUNDS * last["spent_mu"])
    for words in (last["protects"], last["guarantee"], last["warnings"][0]):
        assert "epsilon = 1.81" in words
    assert all("across" not in warning and "lives" not in warning for warning in played.reports[0]["warnings"])


def test_a_declared_restore_costs_nothing(tmp_path: Path) -> None:
    """Where no life released since, a person has k rows in all: those before the backup and the rest after it."""
    bench = Bench(tmp_path / "store", "stream-glm", **SERVED)
    rows = come(bench, "before", times=1)
    file = saved(bench, tmp_path / "backup")
    bench.close()
    store = quick_store(tmp_path / "moved")
    with pytest.raises(InvalidInput, match="exclude each other"):
        restore_store(file, store, accept_user_cost=True, nothing_released_since=True)
    restore_store(file, store, nothing_released_since=True)
    store.close()
    life = Life(tmp_path / "moved")
    assert rows + come(life, "after") == ROUNDS
    assert life.host.published.privacy["lives"] == 1
    assert life.host.published.privacy["epsilon_across_lives"] == pytest.approx(1.0, abs=2e-4)
    life.close()


def test_the_refusal_says_what_it_costs_and_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", "stream-glm", **SERVED)
    bench.deployment.put("q", {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6})
    file = saved(bench, tmp_path / "backup")
    bench.close()
    store = quick_store(tmp_path / "other")
    with pytest.raises(InvalidInput) as refused:
        restore_store(file, store)
    for words in (
        "p, epsilon = 1.45 at delta = 1e-06 over 2 lives in place of 1",
        "--accept-user-cost",
        "--nothing-released-since",
    ):
        assert words in str(refused.value)
    assert "q," not in str(refused.value)  # whose epsilon is that of a visit
    assert store.journals() == []
    kept = restore_store(file, store, accept_user_cost=True)
    assert {name: each.note.get("lives") for name, each in kept.items()} == {"p": 2, "q": None}
    deployment = Deployment(store)
    assert {name: served.host.published.privacy["lives"] for name, served in deployment.policies.items()} == {
        "p": 2,
        "q": 1,
    }
    store.close()


def test_siblings_count_alike(tmp_path: Path) -> None:
    """Two lives from one backup cannot know of each other: each counts itself and what came before."""
    bench = Bench(tmp_path / "store", "stream-glm", **SERVED)
    file = saved(bench, tmp_path / "backup")
    bench.close()
    for name in ("one", "two"):
        store = quick_store(tmp_path / name)
        restore_store(file, store, accept_user_cost=True)
        assert Deployment(store).get("p").host.published.privacy["lives"] == 2
        back_up_store(store, tmp_path / f"{name}.backup")
        assert read_backup(tmp_path / f"{name}.backup")[0]["p"].note["lives"] == 2
        store.close()


def test_a_policy_that_counts_users_is_served_and_nothing_else(tmp_path: Path) -> None:
    """`tacit.open_policy` knows no users: decisions made through it would not be counted."""
    bench = Bench(tmp_path / "store", "stream-glm", **SERVED)
    bench.close()
    with pytest.raises(InvalidInput, match="counts its users"):
        tacit.open_policy(tmp_path / "store", name="p")
    store = quick_store(tmp_path / "store")
    assert Deployment(store).get("p").terms.user_level
    store.close()
