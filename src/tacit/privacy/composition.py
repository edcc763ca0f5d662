"""Composition: from a list of charged events to what the worst placed user has lost.

The rule for cohorts. A named cohort is a set of rows that no other cohort shares (an epoch of a doubling
stream, a batch of the shuffle protocol); events of cohort None see every row. Replacing a row changes one
of

* every common event by its sensitivity, and the events of one cohort A by theirs (the row stays in A), or
* every common event by its sensitivity, the events of A by their **moving** sensitivity (the row leaves)
  and the events of another cohort B by theirs (the row enters).

Costs are squares of shifts, weighted by the inverse variance (for a Renyi curve: by the divergence per
squared shift), and events are independent given the past, so squares add. With R_A, M_A the sums of
replacement and moving costs in A the loss is at most

    common + max( max_A R_A,  max_{A != B} M_A + M_B ).

When each moving sensitivity is at most sensitivity / sqrt(2), then M_A <= R_A / 2 and the second term never
exceeds the first: disjoint cohorts are free. The rule does not assume it, it evaluates both terms. Which
cohort a row is in may depend on the past, since the bound holds on every path. k rows of one user: shifts
add as vectors, so by the triangle inequality in the weighted norm the loss is at most k^2 times that of one
row.

docs/theory.md#cohorts has the proof.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit._validate import nonnegative_or_inf, probability
from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget
from tacit.privacy.events import DiscreteGaussianRelease, NoisySum, PrivacyEvent, RenyiRelease
from tacit.privacy.gaussian import epsilon_from, mu_from
from tacit.privacy.lattice import RESERVE, fits_reserve
from tacit.typing import FloatArray

Accounting = Literal["gaussian", "lattice", "renyi"]
Charge = tuple[PrivacyEvent, str | None]

# A plan that adds up to the budget in exact arithmetic must pass; see docs of Ledger.
SLACK: Final = 1e-11
# With a fixed order the conversion uses (1 - share) delta, fixed in advance, and tails may use up the rest.
FIXED_ORDER_TAIL_SHARE: Final = 0.01
# Used where Gaussian releases are charged by Renyi accounting and no event brings orders of its own.
DEFAULT_ORDERS: Final = tuple(float(a) for a in np.unique(np.round(1.0 + np.geomspace(0.05, 4000.0, 160), 6)))


@dataclass(frozen=True)
class Totals:
    """What a set of charges amounts to for one user."""

    mu: float
    remaining_mu: float
    fits: bool
    find_epsilon: Callable[[], float]
    """Computes ``epsilon``, which takes a solver; a charge does not need it."""
    slack: float = 0.0
    """Eta of the lattice lemma, for discrete noise."""
    draws: int = 0
    """Discrete noise values that can count for one user."""

    @cached_property
    def epsilon(self) -> float:
        """Epsilon spent, at the delta of the budget."""
        return self.find_epsilon()


def worst_case(costs: Iterable[tuple[str | None, float, float]]) -> float:
    """Largest sum of costs over all placements of one row; ``costs`` holds (cohort, replaced, moved)."""
    common: list[float] = []
    replaced: dict[str, list[float]] = defaultdict(list)
    moved: dict[str, list[float]] = defaultdict(list)
    for cohort, replace, move in costs:
        stay = max(replace, move)  # a row that never comes only leaves
        if cohort is None:
            common.append(stay)
        else:
            replaced[cohort].append(stay)
            moved[cohort].append(move)
    stays = [math.fsum(values) for values in replaced.values()]
    moves = sorted((math.fsum(values) for values in moved.values()), reverse=True)
    moving = math.fsum(moves[:2]) if len(moves) > 1 else 0.0
    return math.fsum(common) + max([moving, *stays])


def totals(charges: Sequence[Charge], budget: Budget, accounting: Accounting, order: float | None) -> Totals:
    """Compose ``charges`` under one of the three accountings."""
    counted = _that_can_count(charges, 2 * budget.rounds_per_user)
    if accounting == "renyi":
        return _renyi_totals(counted, budget, order)
    return _quadratic_totals(counted, budget, accounting)


def _that_can_count(charges: Sequence[Charge], touched: int) -> list[Charge]:
    """The charges without cohorts that are like ``touched`` others: a user's rows touch no more, and none costs more.

    Batch after batch is charged alike: what a charge takes must not grow with their number.
    """
    cohorts: dict[str, list[PrivacyEvent]] = defaultdict(list)
    for event, cohort in charges:
        if cohort is not None:
            cohorts[cohort].append(event)
    alike: dict[tuple[PrivacyEvent, ...], int] = defaultdict(int)
    dropped: set[str] = set()
    for cohort, events in cohorts.items():
        kind = tuple(events)
        alike[kind] += 1
        if alike[kind] > touched:
            dropped.add(cohort)
    return [(event, cohort) for event, cohort in charges if cohort not in dropped]


def _quadratic_totals(charges: Sequence[Charge], budget: Budget, accounting: Accounting) -> Totals:
    """Squares of mu add up to the square of the limit, exactly."""
    sums = [(event, cohort) for event, cohort in charges if isinstance(event, NoisySum)]
    assert len(sums) == len(charges)
    spent = worst_case((cohort, event.cost, event.moving_cost) for event, cohort in sums)
    limit = (budget.mu if accounting == "gaussian" else budget.lattice_mu) ** 2
    mu = math.sqrt(spent)
    remaining = math.inf if math.isinf(limit) else math.sqrt(max(0.0, limit - spent))
    slack, draws = _discretisation(charges, budget.rounds_per_user)
    room = fits_reserve(slack, draws, budget.epsilon, budget.delta)
    delta = budget.delta * (1.0 if accounting == "gaussian" else 1.0 - RESERVE)
    fits = budget.unlimited or (spent <= limit * (1.0 + SLACK) and room)

    def epsilon() -> float:
        return epsilon_from(mu * budget.rounds_per_user, delta) + 2.0 * slack

    return Totals(mu, remaining, fits, epsilon, slack, draws)


def _discretisation(charges: Sequence[Charge], rounds_per_user: int) -> tuple[float, int]:
    """Slack and number of the discrete draws that one user's rows can touch.

    Common releases, and those of two cohorts for each row: the one that it leaves and the one that it enters.
    """
    common: list[tuple[float, int]] = [(0.0, 0)]
    cohorts: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for event, cohort in charges:
        if isinstance(event, DiscreteGaussianRelease):
            (common if cohort is None else cohorts[cohort]).append((event.slack, event.draws))
    touched = 2 * rounds_per_user
    sums = [tuple(map(math.fsum, zip(*parts, strict=True))) for parts in cohorts.values()]
    slack, draws = (
        math.fsum(part[which] for part in common) + math.fsum(sorted((s[which] for s in sums), reverse=True)[:touched])
        for which in (0, 1)
    )
    return slack, int(draws)


def _renyi_totals(charges: Sequence[Charge], budget: Budget, order: float | None) -> Totals:
    """Curves add up order by order; the best order, or the one fixed in advance, is converted."""
    orders = _orders(charges) if order is None else (order,)
    spent = budget.rounds_per_user**2 * _worst_curve(charges, orders)
    tail = _tail(charges, budget.rounds_per_user)
    delta = budget.delta - tail if order is None else budget.delta * (1.0 - FIXED_ORDER_TAIL_SHARE)
    if delta <= 0.0 or tail > budget.delta - delta + SLACK * budget.delta:
        return Totals(math.inf, 0.0, budget.unlimited, lambda: math.inf)
    epsilon = epsilon_from_renyi(orders, spent, delta) if charges else 0.0
    room = renyi_budget(orders, budget.epsilon, delta) - np.where(np.isfinite(spent), spent, 0.0)
    room = np.where(np.isfinite(spent), room, 0.0)
    remaining = budget.per_row(math.sqrt(max(0.0, float(np.max(2.0 * room / np.asarray(orders))))))
    mu = budget.per_row(mu_from(epsilon, budget.delta)) if charges else 0.0
    fits = budget.unlimited or epsilon <= budget.epsilon * (1.0 + SLACK)
    return Totals(mu, remaining, fits, lambda: epsilon)


def _worst_curve(charges: Sequence[Charge], orders: tuple[float, ...]) -> FloatArray:
    curves = [(cohort, *_curves(event, orders)) for event, cohort in charges]
    worst = [worst_case((c, stay[j], move[j]) for c, stay, move in curves) for j in range(len(orders))]
    return np.asarray(worst, dtype=np.float64)


@lru_cache(maxsize=4096)
def _curves(event: PrivacyEvent, orders: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(map(event.divergence, orders)), tuple(map(event.moving_divergence, orders))


def _orders(charges: Sequence[Charge]) -> tuple[float, ...]:
    """All orders that the events state; intermediate values are interpolated upwards by the events."""
    stated = {a for event, _ in charges if isinstance(event, RenyiRelease) for a in event.orders}
    return tuple(sorted(stated)) or DEFAULT_ORDERS


def _tail(charges: Sequence[Charge], rounds_per_user: int) -> float:
    """Additive delta: k rows touch at most 2k cohorts, so the 2k largest cohort sums count."""
    common, cohorts = 0.0, defaultdict[str, float](float)
    for event, cohort in charges:
        tail = event.count * event.tail_delta if isinstance(event, RenyiRelease) else 0.0
        if cohort is None:
            common += tail
        else:
            cohorts[cohort] += tail
    return common + math.fsum(sorted(cohorts.values(), reverse=True)[: 2 * rounds_per_user])


def epsilon_from_renyi(orders: ArrayLike, divergences: ArrayLike, delta: float) -> float:
    """Return the smallest epsilon >= 0 that a Renyi curve implies at ``delta``.

    Parameters
    ----------
    orders : array_like, shape (n,)
        Renyi orders, finite and above 1.
    divergences : array_like, shape (n,)
        Bound on the divergence of each order; not negative, infinity allowed.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    float
        Epsilon; infinite when no divergence is finite.

    Formal guarantee
    ----------------
    If the Renyi divergence of order alpha > 1 between the outputs on any two neighbours is at
    most tau, the mechanism is (epsilon, delta)-DP for

        epsilon = tau + log(1 - 1/alpha) - (log delta + log alpha) / (alpha - 1)

    (Canonne, Kamath and Steinke, arXiv 2004.00010, Proposition 12; also Balle et al., arXiv 1905.09982, Theorem
    21). It holds for each order, hence for the best one of any set that was fixed in advance
    (docs/theory.md#renyi-accounting).

    Examples
    --------
    >>> from tacit.privacy import epsilon_from_renyi
    >>> round(epsilon_from_renyi([2.0, 8.0, 32.0], [0.01, 0.04, 0.16], delta=1e-6), 4)
    0.4621
    """
    alpha, tau = _checked_curve(orders, divergences)
    candidates = tau + _correction(alpha, math.log(probability("delta", delta)))
    return max(0.0, float(np.min(candidates)))


def renyi_budget(orders: ArrayLike, epsilon: float, delta: float) -> FloatArray:
    """Return the largest divergence of each order that still implies (epsilon, delta)-DP.

    Parameters
    ----------
    orders : array_like, shape (n,)
        Renyi orders, finite and above 1.
    epsilon : float
        Not negative; infinity allowed.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    ndarray, shape (n,)
        Largest divergence of each order; negative where no divergence does.

    Examples
    --------
    >>> from tacit.privacy import renyi_budget
    >>> renyi_budget([2.0, 8.0, 32.0], epsilon=1.0, delta=1e-6).round(2).tolist()
    [-11.43, -0.54, 0.7]
    """
    alpha, _ = _checked_curve(orders, np.zeros(np.size(orders)))
    epsilon = nonnegative_or_inf("epsilon", epsilon)
    budget: FloatArray = epsilon - _correction(alpha, math.log(probability("delta", delta)))
    return budget


def _correction(alpha: FloatArray, log_delta: float) -> FloatArray:
    """What Proposition 12 adds to the divergence of each order."""
    correction: FloatArray = np.log1p(-1.0 / alpha) - (log_delta + np.log(alpha)) / (alpha - 1.0)
    return correction


def _checked_curve(orders: ArrayLike, divergences: ArrayLike) -> tuple[FloatArray, FloatArray]:
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    tau = np.atleast_1d(np.asarray(divergences, dtype=np.float64))
    if alpha.ndim != 1 or alpha.shape != tau.shape or alpha.size == 0:
        raise InvalidInput(f"orders and divergences must be equally long, got {alpha.shape}, {tau.shape}")
    if not (np.all(alpha > 1.0) and np.all(np.isfinite(alpha))):
        raise InvalidInput(f"orders must be finite and above 1, got {alpha.tolist()!r}")
    if not np.all(tau >= 0.0):
        raise InvalidInput(f"divergences must be nonnegative, got {tau.tolist()!r}")
    return alpha, tau
