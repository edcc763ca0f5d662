"""A privacy budget: what one user may lose over a whole deployment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tacit._validate import integer_at_least, positive_or_inf, probability
from tacit.privacy.gaussian import mu_from
from tacit.privacy.lattice import lattice_mu


@dataclass(frozen=True)
class Budget:
    """A privacy budget (epsilon, delta) for one user who appears in up to ``rounds_per_user`` rounds.

    Parameters
    ----------
    epsilon : float
        Positive; infinity switches privacy off.
    delta : float
        Strictly between 0 and 1.
    rounds_per_user : int, default 1
        Most rounds that one user appears in.

    Formal guarantee
    ----------------
    Adjacency is replacement of a user's rows, at most ``rounds_per_user`` of them. A
    mechanism that is ``mu``-GDP for one replaced row keeps the budget for the whole user: k rows cost k
    times the parameter (docs/theory.md#several-rows-of-one-user). ``epsilon=inf`` switches privacy off.

    Examples
    --------
    >>> from tacit.privacy import Budget
    >>> round(Budget(epsilon=1.0, delta=1e-6).mu, 4)
    0.2367
    >>> round(Budget(epsilon=1.0, delta=1e-6, rounds_per_user=2).mu, 4)
    0.1184
    """

    epsilon: float
    delta: float
    rounds_per_user: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_or_inf("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))
        rounds = integer_at_least("rounds_per_user", self.rounds_per_user, 1)
        object.__setattr__(self, "rounds_per_user", rounds)

    @property
    def unlimited(self) -> bool:
        """True when epsilon is infinite: noise is off and nothing is promised."""
        return math.isinf(self.epsilon)

    @cached_property
    def mu(self) -> float:
        """Gaussian-DP parameter that all releases together may spend on one row."""
        return self.per_row(mu_from(self.epsilon, self.delta))

    @cached_property
    def lattice_mu(self) -> float:
        """Gaussian-DP parameter of one row for discrete noise: what the reserve for discreteness leaves of ``mu``."""
        return self.per_row(lattice_mu(self.epsilon, self.delta))

    def per_row(self, user_mu: float) -> float:
        """Divide what a user may spend among the rows of ``rounds_per_user`` rounds.

        Parameters
        ----------
        user_mu : float
            Gaussian-DP parameter of all rows of a user together.

        Returns
        -------
        float
            Gaussian-DP parameter of one row.
        """
        return user_mu / self.rounds_per_user
