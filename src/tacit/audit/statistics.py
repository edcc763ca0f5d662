"""Lower confidence bounds on epsilon from what an attacker saw in many runs of two worlds.

Two methods.  *Clopper-Pearson*: a mechanism that is (epsilon, delta)-DP has TPR <= e^epsilon FPR + delta for every
test, in both directions; whatever the mechanism is, error rates of one test bound epsilon from below.  *Gaussian DP*: a
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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, chi2

from tacit.privacy.gaussian import epsilon_from
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
        """Turned so that large values speak for ``second``, as far as the first halves tell."""
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
    """Clopper-Pearson: exceeded by the true rate with probability at most ``failure``."""
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
    """By Gaussian DP; ``threshold=None`` chooses it on one half of the runs."""
    judged = samples
    if threshold is None:
        training, judged = samples.halves()
        threshold = _best_threshold(training, delta, confidence, gaussian=True)
    mu = _gaussian_mu(judged, threshold, confidence)
    return Bound(epsilon_from(mu, delta) if mu > 0.0 else 0.0, "Gaussian DP", threshold, samples.runs)


def clopper_pearson_bound(samples: Samples, delta: float, confidence: float = 0.95) -> Bound:
    """By counting errors alone, with a threshold from the other half of the runs."""
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
