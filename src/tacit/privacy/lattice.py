"""What it costs that discrete Gaussian noise is not exactly Gaussian: a ten-thousandth of the budget.

Lemma (docs/theory.md#lattice-lemma, with its proof). Fix two neighbouring worlds, and call a draw touched if the
integers that it is added to differ between them. Let at most N draws be touched, draw i with parameter s_i >= 4
steps, and let eta be the sum of 12 / s_i^2 over them. If the same releases with continuous Gaussian noise, rounded,
are (epsilon, delta)-DP, the real ones are

    (epsilon + 2 eta,  e^eta delta + (1 + e^(epsilon + eta)) 2 N e^-126)-DP.

Rounding is post-processing of integer + continuous noise, so that the hypothesis holds by **exact Gaussian DP** with
mu = sensitivity / s. The alternative, charging zCDP, would lose 8% of mu at (1, 1e-5) and 16% at (1, 0.02). The ledger
counts all draws of the cohorts that a user's rows can be in, touched or not, which is more than the lemma asks for.
"""

from __future__ import annotations

import math
from typing import Final

from tacit._validate import nonnegative_or_inf, probability
from tacit.privacy.gaussian import epsilon_from, mu_from

# Share of epsilon and of delta set aside, in advance, for the lemma's terms.
RESERVE: Final = 1e-4
_LOG_TAIL: Final = math.log(2.0) - 126.0


def discretisation_slack(draws: float, steps: float) -> float:
    """The lemma's eta for ``draws`` draws of parameter ``steps``; infinite where the lemma does not apply."""
    return 12.0 * draws / (steps * steps) if steps >= 4.0 else math.inf


def fits_reserve(slack: float, draws: int, epsilon: float, delta: float) -> bool:
    """Whether the lemma turns ((1 - r) epsilon, (1 - r) delta)-DP into (epsilon, delta)-DP.

    eta <= r epsilon / 2 settles epsilon; eta <= r / 4 and a tail term of at most r delta / 4 settle delta,
    since (1 - r) e^(r/4) + r/4 <= 1.
    """
    if draws == 0:
        return True
    return slack <= largest_slack(epsilon) and _tail_fits(draws, epsilon, delta)


def largest_slack(epsilon: float) -> float:
    """The most that all releases of one ledger may have of it."""
    return RESERVE * min(0.5 * epsilon, 0.25)


def _tail_fits(draws: float, epsilon: float, delta: float) -> bool:
    """Whether (1 + e^epsilon) 2 N e^-126 is at most r delta / 4."""
    log_tail = math.log(draws) + _LOG_TAIL + math.log1p(math.exp(-epsilon)) + epsilon
    return log_tail <= math.log(0.25 * RESERVE * delta)


def lattice_epsilon(mu: float, slack: float, draws: float, delta: float) -> float:
    """Epsilon at ``delta`` of releases that are mu-GDP but for their discreteness; infinite where the lemma has none.

    The lemma is applied at the delta_0 with e^eta delta_0 <= (1 - r) e^(r/4) delta, which leaves r delta / 4 for its
    tail.  Where the slack keeps within one ledger's reserve this is the ledger's own epsilon; of several ledgers
    together it need not keep within it.
    """
    if draws == 0.0:
        return epsilon_from(mu, delta)
    if math.isinf(mu) or math.isinf(slack):
        return math.inf
    inside = (1.0 - RESERVE) * delta * math.exp(-max(0.0, slack - 0.25 * RESERVE))
    if inside == 0.0:
        return math.inf
    epsilon = epsilon_from(mu, inside)
    return epsilon + 2.0 * slack if _tail_fits(draws, epsilon + slack, delta) else math.inf


def reserved_steps(epsilon: float, rounds_per_user: int) -> float:
    """Smallest parameter, in steps and per square root of the draws' weight, at which half of the reserve is enough.

    For draws of a named cohort: 2 k cohorts count for a user with k rows.  The other half is for all other releases.
    """
    allowed = 0.5 * RESERVE * min(0.5 * epsilon, 0.25)
    return math.sqrt(12.0 * 2.0 * rounds_per_user / allowed)


def lattice_mu(epsilon: float, delta: float) -> float:
    """Largest mu that discrete Gaussian releases may spend: ``mu_from`` of the budget less the reserve."""
    epsilon = nonnegative_or_inf("epsilon", epsilon)
    return mu_from((1.0 - RESERVE) * epsilon, (1.0 - RESERVE) * probability("delta", delta))
