"""Lower confidence bounds on epsilon from what an attacker saw in many runs of two worlds.

Two methods.  *Clopper-Pearson*: a mechanism that is (epsilon, delta)-DP has TPR <= e^epsilon FPR + delta for every
test, in both directions; for any mechanism, error rates of one test bound epsilon from below.  *Gaussian DP*: a
mu-GDP mechanism has Phi^-1(TPR) - Phi^-1(FPR) <= mu for every test; the largest mu that contradicts the data is
turned into epsilon by the mechanism's own curve (Nasr et al., arXiv 2302.07956).  The second needs the claim to
be one of Gaussian DP, as all claims here are, and finds far more: a factor of two in the noise at epsilon = 1 is out
of reach of the first with 5,000 runs.

Clopper-Pearson bounds false positives and false negatives each with half of the failure probability.  The Gaussian
method needs one rate only: on the trade-off curve of mu-GDP the mean of both errors is at least Phi(-mu / 2), reached
where they are equal, so the pooled errors of as many runs of either world bound mu.  (A sum of independent errors of
two rates has lighter tails than a binomial of their mean: Hoeffding 1956, Theorem 4.)  It too uses half of the failure
probability, the lower end of a two-sided interval.  A threshold must not be chosen on the data that it is judged by: a
log-likelihood ratio has its threshold by theory, 0; others take it from one half of the runs and are judged on the
other.

**Shuffled sums** have exact laws, so that epsilon needs no runs (`loss_epsilon`); this shares nothing with
`binomial_dominance`, by which noise is calibrated.  One user's contribution to a shuffled sum is x in one world and x'
in the other, vectors in steps of the grid.  The sum shows, in each coordinate, ``floor(x + U) + Bin(N, p)`` plus the
randomly rounded values of all other users.  These are independent of the user's own and have the same law in both
worlds; adding them is post-processing, so that leaving them out can only make the worlds easier to tell apart.  What is
left are two known discrete laws per coordinate, mixtures of two shifted binomials, independent across coordinates.  The
privacy loss distribution of each coordinate, and of all of them together, is computed by dp-accounting (Koskela et al.,
arXiv 1906.03049; Meiser and Mohammadi, CCS 2018), which is in the extra ``audit``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Final

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom, chi2

from tacit._validate import integer_at_least, probability
from tacit.errors import InvalidInput, TacitError
from tacit.privacy.gaussian import epsilon_from, mu_from
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

CLAIM_SLACK: Final = 1e-9


@dataclass(frozen=True)
class Samples:
    """A statistic in many runs of either world; large values speak for ``second``."""

    first: FloatArray
    second: FloatArray

    @property
    def runs(self) -> int:
        """Runs of each world."""
        return int(min(self.first.size, self.second.size))

    def oriented(self) -> Samples:
        """The samples with their sign chosen, on the first halves, so that large values speak for ``second``."""
        training = self.halves()[0]
        forward = float(np.mean(training.second)) >= float(np.mean(training.first))
        return self if forward else Samples(-self.first, -self.second)

    def halves(self) -> tuple[Samples, Samples]:
        """One half to choose a threshold on, one to judge it on."""
        a, b = self.first.size // 2, self.second.size // 2
        return Samples(self.first[:a], self.second[:b]), Samples(self.first[a:], self.second[b:])


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon, and the test that gave it."""

    epsilon: float
    method: str
    threshold: float
    runs: int


def upper_rate(count: int, total: int, failure: float) -> float:
    """Clopper-Pearson bound, which the true rate exceeds with probability at most ``failure``."""
    return 1.0 if count >= total else float(beta.ppf(1.0 - failure, count + 1, total - count))


def _error_rates(samples: Samples, threshold: float, confidence: float) -> tuple[float, float]:
    """Upper bounds on false positives and false negatives of "second if above the threshold"."""
    half = 0.5 * (1.0 - confidence)
    false_positives = int(np.count_nonzero(samples.first > threshold))
    false_negatives = int(np.count_nonzero(samples.second <= threshold))
    return (
        upper_rate(false_positives, samples.first.size, half),
        upper_rate(false_negatives, samples.second.size, half),
    )


def gaussian_bound(samples: Samples, delta: float, confidence: float = 0.95, threshold: float | None = 0.0) -> Bound:
    """Lower bound on epsilon by Gaussian DP; ``threshold=None`` chooses a threshold on one half of the runs."""
    judged = samples
    if threshold is None:
        training, judged = samples.halves()
        threshold = _best_threshold(training, delta, confidence, gaussian=True)
    mu = _gaussian_mu(judged, threshold, confidence)
    return Bound(epsilon_from(mu, delta) if mu > 0.0 else 0.0, "Gaussian DP", threshold, samples.runs)


def clopper_pearson_bound(samples: Samples, delta: float, confidence: float = 0.95) -> Bound:
    """Lower bound on epsilon by counting errors alone, with a threshold from the other half of the runs."""
    training, judged = samples.halves()
    threshold = _best_threshold(training, delta, confidence, gaussian=False)
    epsilon = _counted_epsilon(*_error_rates(judged, threshold, confidence), delta)
    return Bound(epsilon, "Clopper-Pearson", threshold, samples.runs)


def _gaussian_mu(samples: Samples, threshold: float, confidence: float) -> float:
    runs = samples.runs
    errors = int(np.count_nonzero(samples.first[:runs] > threshold))
    errors += int(np.count_nonzero(samples.second[:runs] <= threshold))
    pooled = upper_rate(errors, 2 * runs, 0.5 * (1.0 - confidence))
    return max(0.0, -2.0 * float(ndtri(pooled))) if pooled < 1.0 else 0.0


def _counted_epsilon(false_positive: float, false_negative: float, delta: float) -> float:
    """The larger of log((1 - FNR - delta) / FPR) and log((1 - FPR - delta) / FNR)."""
    best = 0.0
    for a, b in ((false_positive, false_negative), (false_negative, false_positive)):
        if 1.0 - b - delta > a > 0.0:
            best = max(best, math.log((1.0 - b - delta) / a))
    return best


def _best_threshold(samples: Samples, delta: float, confidence: float, *, gaussian: bool) -> float:
    values = np.concatenate([samples.first, samples.second])
    candidates = np.unique(np.quantile(values, np.linspace(0.005, 0.995, 199)))

    def found(threshold: float) -> float:
        if gaussian:
            return _gaussian_mu(samples, threshold, confidence)
        return _counted_epsilon(*_error_rates(samples, threshold, confidence), delta)

    return float(max(candidates, key=found))


def noise_scale_bounds(draws: FloatArray, failure: float = 1e-6) -> tuple[float, float]:
    """Confidence interval for the standard deviation of centred Gaussian draws, by chi-square."""
    total = float(draws @ draws)
    low = chi2.ppf(1.0 - 0.5 * failure, draws.size)
    high = chi2.ppf(0.5 * failure, draws.size)
    return math.sqrt(total / low), math.sqrt(total / high)


Pair = tuple[FloatArray, FloatArray]
"""Mass functions of one coordinate in the two worlds, on the same outcomes."""

_HALF_WIDTH: Final = (12.0, 60.0)
"""A binomial is cut off beyond 12 sd + 60: e^-72 lies outside (Bernstein: t^2 >= 144 (sd^2 + t / 3) there)."""

_INTERVAL: Final = 1e-4
"""Losses are rounded to multiples of this: epsilon is overstated by less than this for each coordinate."""

_LOG_MASS: Final = -45.0
"""Log of the mass below which an outcome is counted in full, as if it were impossible in the other world."""


@lru_cache(maxsize=512)
def _binomial(trials: int, success: float, reach: int) -> FloatArray:
    """Mass function of Bin(trials, success) around its mean, wide enough for a shift of ``reach``."""
    sds, least = _HALF_WIDTH
    half = math.ceil(sds * math.sqrt(trials * success * (1.0 - success)) + least) + reach
    center = round(trials * success)
    mass = binom.pmf(np.arange(max(0, center - half), min(trials, center + half) + 1), trials, success)
    return np.asarray(mass, dtype=np.float64)


def coordinate_laws(trials: int, success: float, first: float, second: float) -> Pair:
    """Laws of ``floor(x + U) + Bin(trials, success)``, U uniform on [0, 1), for x = ``first`` and x = ``second``.

    Both are on the same consecutive integers.
    """
    integer_at_least("trials", trials, 1)
    probability("success", success)
    base = math.floor(min(first, second))
    reach = math.floor(max(first, second)) - base + 1
    mass = _binomial(trials, success, 1 << reach.bit_length())
    laws = np.zeros((2, mass.size + reach))
    for law, x in zip(laws, (first, second), strict=True):
        whole = math.floor(x)
        part, start = x - whole, whole - base
        law[start : start + mass.size] += (1.0 - part) * mass
        law[start + 1 : start + 1 + mass.size] += part * mass[: law.size - start - 1]
    return laws[0], laws[1]


def protocol_pairs(protocol: SumProtocol, users: int, first: FloatArray, second: FloatArray) -> list[Pair]:
    """Laws of all coordinates that differ when the contribution of one of ``users`` honest reports is replaced.

    ``first`` and ``second`` are one user's contribution in steps of the grid, before rounding: one line of
    ``protocol.scaled(protocol.domain.embed(rows))``.
    """
    shape = (protocol.domain.size,)
    if first.shape != shape or second.shape != shape:
        raise InvalidInput(f"contributions must have shape {shape}, got {first.shape} and {second.shape}")
    trials, success = protocol.noise_trials(users), protocol.noise_probability
    both = zip(first.tolist(), second.tolist(), strict=True)
    return [coordinate_laws(trials, success, x, y) for x, y in both if x != y]


def loss_epsilon(pairs: Sequence[Pair], delta: float, *, upper: bool = True) -> float:
    """A bound on epsilon, at ``delta``, of telling two worlds apart by all of these independent coordinates.

    Formal guarantee
    ----------------
    Adjacency: the two worlds of ``pairs``, which for a shuffled sum differ in one user's contribution
    (its law: docs/theory.md#domination-theorem).  With ``upper``, outcomes are (result, ``delta``)-DP for these two
    worlds, in both directions; nothing is said about other pairs of worlds.  Otherwise, some test of the outcomes
    refutes every epsilon below the result.  The result is infinite when outcomes that are possible in one world only
    exceed ``delta``.
    """
    probability("delta", delta)
    if not pairs:
        return 0.0
    library = accounting()
    parts = (
        library.from_two_probability_mass_functions(
            *(_log_masses(law) for law in pair),
            pessimistic_estimate=upper,
            value_discretization_interval=_INTERVAL,
            log_mass_truncation_bound=_LOG_MASS,
            symmetric=False,
        )
        for pair in pairs
    )
    return float(reduce(lambda first, second: first.compose(second), parts).get_epsilon_for_delta(delta))


def loss_mu(pairs: Sequence[Pair], delta: float) -> float:
    """The Gaussian-DP parameter that has the same epsilon at ``delta`` as ``loss_epsilon``.

    For comparison with a claimed mu at this delta only.  To judge several releases together, hand all of their pairs
    to ``loss_epsilon``; squares of this function's values add up only approximately.
    """
    epsilon = loss_epsilon(pairs, delta)
    return mu_from(epsilon, delta) if epsilon > 0.0 else 0.0


def accounting() -> Any:
    """dp-accounting's module of privacy loss distributions; an error that names the extra where it is missing."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ModuleNotFoundError as error:
        raise TacitError("an audit of shuffled sums needs dp-accounting: pip install 'tacit-bandits[audit]'") from error
    return privacy_loss_distribution


def _log_masses(law: FloatArray) -> dict[int, float]:
    """Logarithms of the masses of all outcomes that are possible."""
    possible = np.flatnonzero(law)
    return dict(zip(possible.tolist(), np.log(law[possible]).tolist(), strict=True))
