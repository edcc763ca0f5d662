"""Policies that learn through one continual release: horizon, epochs and ledger entries in one place."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from tacit.policies.clock import NO_END, Span
from tacit.policies.config import Config, PrivateConfig, at_least, configuration, one_of, option
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy.continual import (
    ContinualRelease,
    Stream,
    counts_decisions,
    decisions_to_leaf,
    drop_raw,
    is_used_up,
    leaf_is_due,
    leaf_noise_scale,
    plan_release,
    start_epoch,
)
from tacit.privacy.events import PrivacyEvent
from tacit.privacy.lattice import reserved_steps


@configuration
class ContinualConfig(PrivateConfig):
    """What every policy with a continual release is told: privacy budget, and how sums are released.

    Examples
    --------
    >>> from tacit.extend import ContinualConfig
    >>> ContinualConfig(dim=3, epsilon=1.0, delta=1e-6).first_epoch
    1024
    """

    factorization: str | None = option(
        "How sums are released over time: `geometric` (few leaves, integer weights, any horizon), `toeplitz` (every "
        "prefix, floating point) or `tree` (the paper's).",
        default=None,
        check=one_of("geometric", "toeplitz", "tree"),
    )
    first_epoch: int = option(
        "Leaves of the first epoch of `toeplitz` and `tree` when the horizon is unknown; each further epoch has twice "
        "as many.",
        default=1024,
        check=at_least(1),
    )


class ContinualPolicy(PrivatePolicy):
    """A policy whose state has a ``stream`` field.

    `geometric` leaves know no horizon.  The others have, with a horizon, one stream of that many leaves; when they are
    used up, releases stop and the estimate stays as it is.  Without one, epochs double.  Epochs are charged as disjoint
    cohorts: a user's row is in one leaf of one epoch, and what earlier epochs released is public.
    """

    config_type: ClassVar[type[Config]] = ContinualConfig
    config: ContinualConfig
    _chooses_by_releases: ClassVar[bool] = True

    @abstractmethod
    def _plan(self, horizon: int) -> ContinualRelease:
        """The stream over ``horizon`` leaves."""

    def _open_stream(self) -> Stream:
        """Charge the first stream and open it."""
        plan = self._plan(self.setting.horizon or self.config.first_epoch)
        self._charge(plan, 1)
        return plan.open()

    def _plan_stream(
        self, name: str, size: int, horizon: int, *, row_bound: float, row_norm: float, mu: float, factorization: str
    ) -> ContinualRelease:
        """Plan the release of ``size`` numbers with this policy's noise."""
        plan = plan_release(
            name,
            size,
            row_bound=row_bound,
            row_norm=row_norm,
            mu=mu,
            factorization=self.config.factorization or factorization,
            horizon=horizon,
            source=self.randomness.ticks,
        )
        return plan.refined(**self._leaf_terms)

    @property
    def _leaf_terms(self) -> dict[str, Any]:
        """What geometric leaves are told: how fine their grid must be for exact noise, and how many rows may wait."""
        budget = self.setting.budget
        steps = reserved_steps(budget.epsilon, budget.rounds_per_user)
        return {"steps": steps, "waiting": self.config.reward_age or self.config.reward_window}

    def _charge(self, plan: ContinualRelease, epoch: int) -> None:
        """Charge an epoch to a cohort of its own: rows of one epoch, and of one life, are in no other."""
        cohort = self._cohort(f"epoch {epoch}")
        # An epoch that was charged and then interrupted before it began is begun without a second charge.
        if all(entry.cohort != cohort for entry in self.ledger.entries):
            self.ledger.charge(plan.event(), cohort)

    def _start_epoch(self, leaves: int) -> None:
        """Charge the next epoch and begin it; what was released stays, as a public constant."""
        plan, stream = self._plan(leaves), self.state.stream
        self._charge(plan, int(stream.epochs[()]) + 1)
        start_epoch(stream, plan)

    def _ended(self) -> bool:
        return self.setting.horizon is not None and bool(self.state.stream.closed[()] >= self.state.stream.leaves[()])

    def _drop_raw(self) -> None:
        super()._drop_raw()
        stream: Stream = self.state.stream
        drop_raw(stream)
        left = int(stream.leaves[()] - stream.closed[()]) if self.setting.horizon else int(stream.leaves[()])
        if left > 0 or counts_decisions(stream):  # otherwise the horizon is over, and with it all releases
            self._start_epoch(left)

    def _default_noise(self) -> str:
        # Prefix sums with real coefficients leave every grid.
        return "secure" if self.config.factorization == "toeplitz" else super()._default_noise()

    def _planned_calls(self) -> tuple[PrivacyEvent, ...]:
        """Releases beside the stream that the budget is reserved for, in order; none by default."""
        return ()

    def _next_span(self) -> Span:
        """The leaves that are left; without a horizon an epoch of twice the length when none are.

        Geometric leaves: the tick that closes the open one, if it is due, and the decisions up to the next.
        """
        stream: Stream = self._state.stream
        if counts_decisions(stream):
            return self._span_of_decisions(stream)
        left = int(stream.leaves[()] - stream.closed[()])
        if left == 0 and self.setting.horizon is None:
            left = 2 * int(stream.leaves[()])
            self._start_epoch(left)
        return Span(left or NO_END, self._noise_size, self._noise_scale)

    def _span_of_decisions(self, stream: Stream) -> Span:
        if not leaf_is_due(stream):
            return Span(decisions_to_leaf(stream), 0, 0.0, rare=True)
        if is_used_up(stream):
            self._start_epoch(int(stream.leaves[()]))
            return self._span_of_decisions(stream)
        return Span(decisions_to_leaf(stream), self._noise_size, leaf_noise_scale(stream), rare=True)

    @property
    def _noise_size(self) -> int:
        return int(self._state.stream.leaf.size)

    @property
    def _noise_scale(self) -> float:
        return float(self._state.stream.noise_sd[()])
