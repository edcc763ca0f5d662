"""What it costs that discrete Gaussian noise is not exactly Gaussian: almost nothing, and provably so.

Lemma. Let a transcript hold N discrete Gaussian draws on the integers, draw i with parameter s_i >= 4
steps, each added to an integer that may depend on earlier releases. Replace every draw by a continuous
Gaussian rounded to the nearest integer. If that transcript is (epsilon, delta)-DP, the real one is, with
eta = sum of 12 / s_i^2,

    (epsilon + 2 eta,  e^eta delta + (1 + e^(epsilon + eta)) 2 N e^-126)-DP.

Proof. Let P_R(k) and P_G(k) be the two probabilities of k. Poisson summation gives, with t uniform on
[-1/2, 1/2],

    P_R(k) / P_G(k) = (1 + c) E[cosh(k t / s^2) exp(-t^2 / (2 s^2))],   0 <= c <= 3 exp(-2 pi^2 s^2),

which is at least exp(-1/(8 s^2)) and, as sinh(x)/x <= exp(x^2/6), at most (1 + c) exp(k^2 / (24 s^4)). For
|k| <= 16 s the logarithm is at most 12 / s^2 in size. Either noise exceeds 16 s with probability at most 2
e^-126 (the discrete Gaussian is sub-Gaussian with parameter s: complete the square, a shifted theta sum is
largest at 0; rounding moves the other by 1/2 <= s/8). Outside that event the likelihood of a whole
transcript changes by at most e^eta, on every path, so the choice of s_i and of the integers may be
adaptive; apply it on one neighbour, then the hypothesis, then it again on the other neighbour.

Rounding is post-processing of integer + continuous noise, since the integer passes through the rounding. So
the hypothesis holds by **exact Gaussian DP** with mu = sensitivity / s. The alternative, charging zCDP,
would lose 8% of mu at (1, 1e-5) and 16% at (1, 0.02).
"""

from __future__ import annotations

import math
from typing import Final

from tacit._validate import nonnegative_or_inf, probability
from tacit.privacy.gaussian import mu_from

# Share of epsilon and of delta set aside, in advance, for the lemma's terms.
RESERVE: Final = 1e-4
_LOG_TAIL: Final = math.log(2.0) - 126.0


def discretisation_slack(draws: int, steps: float) -> float:
    """The lemma's eta for ``draws`` draws of parameter ``steps``; infinite where the lemma does not apply."""
    return 12.0 * draws / (steps * steps) if steps >= 4.0 else math.inf


def fits_reserve(slack: float, draws: int, epsilon: float, delta: float) -> bool:
    """Whether the lemma turns ((1 - r) epsilon, (1 - r) delta)-DP into (epsilon, delta)-DP.

    eta <= r epsilon / 2 settles epsilon; eta <= r / 4 and a tail term of at most r delta / 4 settle delta,
    since (1 - r) e^(r/4) + r/4 <= 1.
    """
    if draws == 0:
        return True
    log_tail = math.log(draws) + _LOG_TAIL + math.log1p(math.exp(-epsilon)) + epsilon
    return slack <= RESERVE * min(0.5 * epsilon, 0.25) and log_tail <= math.log(0.25 * RESERVE * delta)


def lattice_mu(epsilon: float, delta: float) -> float:
    """Largest mu that discrete Gaussian releases may spend: ``mu_from`` of the budget less the reserve."""
    epsilon = nonnegative_or_inf("epsilon", epsilon)
    return mu_from((1.0 - RESERVE) * epsilon, (1.0 - RESERVE) * probability("delta", delta))
