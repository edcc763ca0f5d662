"""The ledger as a filter: refusal before recording, cohorts, Renyi curves, saving."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.privacy import (
    Budget,
    BudgetExceeded,
    DiscreteGaussianRelease,
    GaussianRelease,
    Ledger,
    PrivacyEvent,
    RenyiRelease,
    composition,
    epsilon_from,
    epsilon_from_renyi,
)
from tacit.privacy.composition import worst_case

BUDGET = Budget(1.0, 1e-5)
ORDERS = tuple(float(a) for a in np.arange(2, 65))
SQRT2 = math.sqrt(2.0)


def release(share: float, budget: Budget = BUDGET, moving: float | None = None, count: int = 1) -> GaussianRelease:
    """A release that spends ``share`` of the budget's mu; ``moving`` is relative to its sensitivity."""
    return GaussianRelease("sum", share, 1.0 / budget.mu, count=count, moving_sensitivity=moving)


def curve(level: float, **fields: Any) -> RenyiRelease:
    return RenyiRelease("bits", ORDERS, tuple(level * a for a in ORDERS), **fields)


def test_exact_plans_are_accepted() -> None:
    for shares in [(0.6, 0.8), (math.sqrt(1 / 3),) * 3, (math.sqrt(1 / 7),) * 7, (1.0 / SQRT2, 0.5, 0.5)]:
        ledger = Ledger(BUDGET)
        for share in shares:
            ledger.charge(release(share))
        assert ledger.epsilon_spent == pytest.approx(1.0, rel=1e-10)
        assert ledger.report().remaining_mu <= 1e-5
        with pytest.raises(BudgetExceeded):
            ledger.charge(release(1e-4))


def test_slack_is_between_rounding_and_excess() -> None:
    assert Ledger(BUDGET).fits(release(1.0 + 1e-12))
    assert not Ledger(BUDGET).fits(release(1.0 + 1e-9))
    assert not Ledger(BUDGET).fits(release(math.sqrt(1.0 + 1e-9)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40), st.integers(1, 5))
def test_every_proportional_plan_fits_and_nothing_more(weights: list[float], rounds: int) -> None:
    budget = Budget(2.0, 1e-6, rounds)
    ledger = Ledger(budget)
    norm = math.sqrt(math.fsum(w * w for w in weights))
    for weight in weights:
        ledger.charge(release(weight / norm, budget))
    assert ledger.epsilon_spent == pytest.approx(2.0, rel=1e-9)
    assert not ledger.fits(release(1e-3, budget))


def test_refusal_comes_before_recording_and_states_the_remedy() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(release(0.6))
    before = ledger.to_dict()
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(release(0.9))
    text = str(refusal.value)
    for word in ("asked epsilon", "spent epsilon", "remaining mu", "Nothing was recorded", "noise_sd >= "):
        assert word in text
    assert ledger.to_dict() == before
    needed = float(text.split("noise_sd >= ")[1].split(" ")[0])
    ledger.charge(GaussianRelease("sum", 0.9, needed * (1 + 1e-5)))  # the stated remedy works


def test_counts_and_spent() -> None:
    ledger = Ledger(BUDGET)
    entry = ledger.charge(release(0.1, count=25))
    assert entry.index == 0
    assert ledger.mu_spent == pytest.approx(0.5 * BUDGET.mu)
    assert ledger.epsilon_spent == pytest.approx(epsilon_from(0.5 * BUDGET.mu, 1e-5))
    assert ledger.report().remaining_mu == pytest.approx(math.sqrt(0.75) * BUDGET.mu)


def test_cohorts_are_free_when_moving_costs_half() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(release(0.6))
    for epoch in range(30):
        ledger.charge(release(0.8, moving=0.8 / SQRT2), f"epoch {epoch}")
    assert ledger.epsilon_spent == pytest.approx(1.0, rel=1e-9)
    assert ledger.fits(release(0.8 * (1.0 - 1e-9), moving=0.8 / SQRT2), "a new epoch")
    assert not ledger.fits(release(0.8 * (1.0 + 1e-6), moving=0.8 / SQRT2), "a new epoch")
    assert not ledger.fits(release(1e-4, moving=1e-4 / SQRT2), "epoch 3")
    with pytest.raises(BudgetExceeded):
        ledger.charge(release(0.01, moving=0.01 / SQRT2), "epoch 3")
    with pytest.raises(BudgetExceeded):
        ledger.charge(release(0.01))


def test_a_row_that_moves_is_charged_in_both_cohorts() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(release(0.8), "a")  # moving sensitivity not stated: as large as the sensitivity
    assert ledger.mu_spent == pytest.approx(0.8 * BUDGET.mu)
    assert ledger.fits(release(0.6), "b")
    assert not ledger.fits(release(0.61), "b")
    ledger.charge(release(0.6), "b")
    assert ledger.mu_spent == pytest.approx(BUDGET.mu)
    with pytest.raises(BudgetExceeded, match="moving_sensitivity"):
        ledger.charge(release(0.61), "c")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.floats(0.0, 2.0), st.floats(0.0, 2.0)),
        max_size=8,
    )
)
def test_worst_case_is_the_maximum_over_placements(costs: list[tuple[str | None, float, float]]) -> None:
    """Brute force: the row stays in one cohort or is missing there, or moves between two that hold events."""
    present = sorted({cohort for cohort, _, _ in costs if cohort is not None})
    common = sum(max(stay, move) for cohort, stay, move in costs if cohort is None)
    places = [sum(max(s, m) for c, s, m in costs if c == a) for a in present]
    places += [sum(m for c, _, m in costs if c in (a, b)) for a in present for b in present if a < b]
    assert worst_case(costs) == pytest.approx(common + max(places, default=0.0))


@pytest.mark.parametrize("rows", [1, 2])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([None, *"abcdefgh"]), st.integers(0, 3)), min_size=1, max_size=14))
def test_cohorts_that_are_alike_may_be_left_out(rows: int, charged: list[tuple[str | None, int]]) -> None:
    """Few kinds of events, so that many cohorts are alike: every total is that of all charges, exactly."""
    budget = Budget(math.inf, 1e-5, rows)
    events = [release(share, moving=moving) for share, moving in ((0.1, 0.1), (0.2, 0.11), (0.3, 0.2), (0.15, 0.14))]
    gaussian = [(events[kind], cohort) for cohort, kind in charged]
    _assert_same_totals(composition._quadratic_totals, gaussian, budget, "gaussian")
    curves = [curve(0.001 * (1 + kind), tail_delta=1e-7 * (4 - kind), moving_sensitivity=0.5) for kind in range(4)]
    renyi = [(curves[kind], cohort) for cohort, kind in charged]
    _assert_same_totals(composition._renyi_totals, renyi, budget, "renyi")


def _assert_same_totals(compose: Any, charges: list[Any], budget: Budget, accounting: Any) -> None:
    whole = compose(charges, budget, None if accounting == "renyi" else accounting)
    found = composition.totals(charges, budget, accounting, None)
    told = [(t.mu, t.remaining_mu, t.fits, t.epsilon) for t in (whole, found)]
    assert told[0] == told[1]


def test_moving_cost_matches_brute_force_on_gaussians() -> None:
    """The change of mean, divided by the noise, over random rows that leave one sum and enter the other."""
    rng = np.random.default_rng(3)
    sd = {"a": 2.0, "b": 3.0}
    ledger = Ledger(Budget(math.inf, 1e-5))
    for cohort, scale in sd.items():
        ledger.charge(GaussianRelease("outer", SQRT2, scale, moving_sensitivity=1.0), cohort)
    worst = 0.0
    for _ in range(500):
        x, y = (v / np.linalg.norm(v) for v in rng.standard_normal((2, 3)))
        stay = np.linalg.norm(np.outer(x, x) - np.outer(y, y)) / sd["a"]
        move = math.hypot(1.0 / sd["a"], 1.0 / sd["b"])
        worst = max(worst, float(stay), move)
    assert worst <= ledger.mu_spent + 1e-12
    assert worst > 0.99 * ledger.mu_spent


def test_discreteness_is_counted_for_the_cohorts_that_rows_can_be_in() -> None:
    """A row is in one cohort in either world: any number of others may follow, two of them use up their reserve."""

    def charged(cohorts: int, rows: int, draws: int) -> float:
        ledger = Ledger(Budget(1.0, 1e-6, rows), accounting="lattice")
        for number in range(cohorts):
            event = DiscreteGaussianRelease("stream", 1.0, 40.0, draws=draws, moving_sensitivity=0.6, grid=2.0**-10)
            ledger.charge(event, f"recovery {number}")
        return ledger.epsilon_spent

    assert charged(300, 1, 500) == charged(2, 1, 500)
    assert charged(300, 3, 500) > charged(2, 3, 500)
    most = int(0.25e-4 * (40.0 * 2.0**10) ** 2 / 12.0)  # eta may be RESERVE / 4 at epsilon = 1
    charged(1, 1, most)
    with pytest.raises(BudgetExceeded):
        charged(2, 1, most)


def test_impossible_moving_sensitivity_is_refused() -> None:
    with pytest.raises(InvalidInput, match="moving_sensitivity must be at least"):
        GaussianRelease("sum", 1.0, 1.0, moving_sensitivity=0.49)


@pytest.mark.parametrize(
    "fields",
    [
        {"sensitivity": -1.0},
        {"sensitivity": math.nan},
        {"sensitivity": math.inf},
        {"noise_sd": -1.0},
        {"noise_sd": math.nan},
        {"count": 0},
        {"count": 1.5},
        {"name": ""},
        {"adjacency": "add-remove"},
        {"note": 3},
    ],
)
def test_bad_events_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(fields))):
        GaussianRelease(**{"name": "sum", "sensitivity": 1.0, "noise_sd": 1.0, **fields})


def test_no_noise_fits_no_finite_budget() -> None:
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(50.0, 0.5)).charge(GaussianRelease("sum", 1.0, 0.0))


def test_unknown_events_are_refused() -> None:
    class Sneaky(GaussianRelease):
        @property
        def cost(self) -> float:
            return 0.0

    for event in (object(), "release", Sneaky("sum", 1.0, 1.0)):
        with pytest.raises(InvalidInput, match="event must be one of"):
            Ledger(BUDGET).charge(event)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cohort"):
        Ledger(BUDGET).charge(release(0.1), "")


def test_unlimited_budget_records_and_says_so() -> None:
    ledger = Ledger(Budget(math.inf, 1e-5))
    for _ in range(3):
        ledger.charge(GaussianRelease("sum", 1.0, 0.0))
    report = ledger.report("joint", "none: noise is off")
    assert len(report.entries) == 3
    assert report.spent_epsilon == math.inf
    assert "noise is off and there is no privacy" in str(report)
    assert json.loads(report.to_json())["target_epsilon"] is None


def test_renyi_curves_add_and_convert() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(curve(0.005))
    ledger.charge(GaussianRelease("sum", 1.0, 20.0))
    expected = epsilon_from_renyi(ORDERS, [0.005 * a + 0.5 * a / 400.0 for a in ORDERS], 1e-5)
    assert ledger.accounting == "renyi"
    assert ledger.epsilon_spent == pytest.approx(expected)
    assert ledger.fits(GaussianRelease("more", 1.0, (1 + 1e-9) / ledger.report().remaining_mu))
    assert not ledger.fits(GaussianRelease("more", 1.0, (1 - 1e-6) / ledger.report().remaining_mu))
    with pytest.raises(BudgetExceeded, match="stop releasing"):
        ledger.charge(curve(1.0))


def test_tails_are_added_to_delta() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(curve(0.005, tail_delta=4e-6))
    assert ledger.epsilon_spent == pytest.approx(epsilon_from_renyi(ORDERS, [0.005 * a for a in ORDERS], 6e-6))
    assert not ledger.fits(curve(0.0001, tail_delta=6.1e-6))
    assert not ledger.fits(curve(0.0001, tail_delta=1e-6, count=7))


def test_tails_of_cohorts_count_for_the_two_that_a_row_can_touch() -> None:
    ledger = Ledger(BUDGET)
    for batch in range(6):
        ledger.charge(curve(0.005, tail_delta=2e-6, moving_sensitivity=0.5), f"batch {batch}")
    assert ledger.epsilon_spent == pytest.approx(epsilon_from_renyi(ORDERS, [0.005 * a for a in ORDERS], 6e-6))


def test_fixed_order_is_a_filter_on_that_order() -> None:
    ledger = Ledger(BUDGET, order=24.0)
    ledger.charge(curve(0.005))
    expected = epsilon_from_renyi([24.0], [0.12], 0.99e-5)
    assert ledger.epsilon_spent == pytest.approx(expected)
    assert expected > epsilon_from_renyi(ORDERS, [0.005 * a for a in ORDERS], 1e-5)
    assert "order 24 fixed in advance" in str(ledger.report())
    for wrong in (1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="order"):
            Ledger(BUDGET, order=wrong)


def test_interpolated_orders_bound_the_true_curve() -> None:
    """A Gaussian known at a few orders only must not look better than it is in between."""
    sparse = RenyiRelease("sum", (1.5, 3.0, 10.0, 40.0), tuple(0.02 * a for a in (1.5, 3.0, 10.0, 40.0)))
    for order in np.linspace(1.01, 40.0, 300):
        assert sparse.divergence(float(order)) >= 0.02 * order * (1 - 1e-12)
    assert sparse.divergence(41.0) == math.inf
    assert sparse.divergence(10.0) == 0.2


def test_returning_users_need_a_curve_that_reaches() -> None:
    budget = Budget(1.0, 1e-5, rounds_per_user=3)
    with pytest.raises(InvalidInput, match="reach"):
        Ledger(budget).charge(curve(0.0005))
    ledger = Ledger(budget)
    ledger.charge(curve(0.0005, reach=3.0))
    assert ledger.epsilon_spent == pytest.approx(epsilon_from_renyi(ORDERS, [0.0045 * a for a in ORDERS], 1e-5))


def test_the_rule_does_not_change_under_way() -> None:
    ledger = Ledger(BUDGET)
    ledger.charge(release(0.1))
    lattice = DiscreteGaussianRelease("sum", 0.1, 10.0, draws=5)
    for event in (curve(0.001), lattice):
        with pytest.raises(InvalidInput, match="open the ledger with"):
            ledger.charge(event)
    opened = Ledger(BUDGET, accounting="renyi")
    mixed: list[PrivacyEvent] = [release(0.1), curve(0.001), lattice]
    for each in mixed:
        opened.charge(each)
    assert len(opened.entries) == 3
    with pytest.raises(InvalidInput, match="accounting"):
        Ledger(BUDGET, accounting="wishful")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [{"orders": (1.0,)}, {"orders": (3.0, 2.0)}, {"divergences": (0.1,)}, {"divergences": (-0.1, 0.2)}],
)
def test_bad_curves_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        RenyiRelease(**{"name": "bits", "orders": (2.0, 3.0), "divergences": (0.1, 0.2), **fields})


def filled() -> Ledger:
    ledger = Ledger(Budget(3.0, 1e-6, 2), accounting="renyi")
    events: list[tuple[PrivacyEvent, str | None]] = [
        (GaussianRelease("inf", 1.0, 31.7, count=3, note="inf"), None),
        (DiscreteGaussianRelease("grid", 1.0, 40.1, draws=7, moving_sensitivity=0.7), "a"),
        (curve(0.0011, tail_delta=1e-9, reach=math.inf), "b"),
    ]
    for event, cohort in events:
        ledger.charge(event, cohort)
    return ledger


def test_saving_round_trips_exactly() -> None:
    for ledger in (filled(), Ledger(BUDGET), Ledger(Budget(math.inf, 0.1)), Ledger(BUDGET, order=8.0)):
        again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict(), allow_nan=False)))
        assert again.to_dict() == ledger.to_dict()
        assert again.entries == ledger.entries
        assert again.epsilon_spent == ledger.epsilon_spent
        assert (again.budget, again.accounting, again.order) == (
            ledger.budget,
            ledger.accounting,
            ledger.order,
        )


def corruptions(data: dict[str, Any]) -> list[dict[str, Any]]:
    edits: list[dict[str, Any]] = []
    for path, value in [
        (("budget", "epsilon"), 30.0),
        (("budget", "epsilon"), math.nan),
        (("budget", "surplus"), 1.0),
        (("entries", 0, "event", "noise_sd"), 3000.0),
        (("entries", 0, "event", "sensitivity"), "1"),
        (("entries", 1, "kind"), "free"),
        (("entries", 2, "cohort"), 5),
        (("entries", 2, "event", "orders"), 5),
        (("entries",), []),
        (("entries",), None),
        (("format",), 2),
        (("accounting",), "wishful"),
        (("digest",), "00"),
    ]:
        copied: Any = copy.deepcopy(data)
        target = copied
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        edits.append(copied)
    return [*edits, {}, {key: data[key] for key in data if key != "budget"}]


@pytest.mark.parametrize("resealed", [False, True])
def test_corrupt_data_is_refused(resealed: bool) -> None:
    """Damage is caught by the digest; a resealed ledger still has to be valid and to fit its budget."""
    from tacit.privacy import ledger as module

    for number, data in enumerate(corruptions(filled().to_dict())):
        if resealed:
            if number in (0, 3, 8, 12):  # valid ledgers, only different ones
                continue
            body = {key: value for key, value in data.items() if key != "digest"}
            try:
                data["digest"] = module._digest(body)
            except InvalidInput:
                continue
        with pytest.raises(InvalidInput, match=r"saved|must"):
            Ledger.from_dict(data)


def test_a_saved_ledger_that_exceeds_its_budget_is_refused() -> None:
    from tacit.privacy import ledger as module

    data: dict[str, Any] = filled().to_dict()
    data["entries"][0]["event"]["noise_sd"] = 0.1
    data["digest"] = module._digest({key: value for key, value in data.items() if key != "digest"})
    with pytest.raises(InvalidInput, match="does not fit"):
        Ledger.from_dict(data)


@pytest.mark.parametrize("model", ["joint", "shuffle", "local", "central"])
def test_report_states_model_and_adjacency(model: Any) -> None:
    report = filled().report(model, "fast: seeded", ("a warning",))
    text = str(report)
    for word in (
        f"{model.capitalize()} differential privacy",
        "Adjacency: replacement",
        "2 rounds",
        "a warning",
    ):
        assert word in text
    for name in ("grid", "bits", "spent", "target", "remaining", "fast: seeded", "renyi"):
        assert name in text
    data = json.loads(report.to_json())
    assert data["spent_epsilon"] == report.spent_epsilon
    assert [row["name"] for row in data["entries"]] == ["inf", "grid", "bits"]


def test_report_without_privacy_and_with_many_entries() -> None:
    ledger = Ledger(BUDGET)
    assert "no releases yet" in str(ledger.report())
    assert "No differential privacy is claimed" in str(ledger.report("none"))
    with pytest.raises(InvalidInput, match="model must be one of"):
        ledger.report("magic")  # type: ignore[arg-type]
    for _ in range(40):
        ledger.charge(release(0.01))
    assert "... and 16 more" in str(ledger.report("joint"))
