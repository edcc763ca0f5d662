"""Policies that learn through one continual release: horizon, epochs and ledger entries in one place."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from tacit.errors import TacitError
from tacit.policies.base import Policy
from tacit.policies.steps import closes_a_stream
from tacit.privacy.continual import ContinualRelease, Stream, start_epoch
from tacit.privacy.events import PrivacyEvent
from tacit.typing import FloatArray

FIRST_EPOCH = 1024
"""Leaves of the first epoch when the horizon is unknown; each further epoch has twice as many."""


class StreamedPolicy(Policy):
    """A policy whose state has a ``stream`` field.

    With a horizon there is one stream of that many leaves; when they are used up, releases stop and the estimate
    stays as it is.  Without one, epochs double.  Epochs are charged as disjoint cohorts: a user's row is in one leaf
    of one epoch, and what earlier epochs released is public.
    """

    @abstractmethod
    def _plan(self, horizon: int) -> ContinualRelease:
        """The stream over ``horizon`` leaves."""

    def _open_stream(self) -> Stream:
        """Charge the first stream and open it."""
        plan = self._plan(self.setting.horizon or FIRST_EPOCH)
        self._charge(plan, 1)
        return plan.open()

    def _charge(self, plan: ContinualRelease, epoch: int) -> None:
        """Charge an epoch to a cohort of its own: rows of one epoch, and of one life, are in no other."""
        assert self.ledger is not None
        cohort = self._cohort(f"epoch {epoch}")
        # An epoch that was charged and then interrupted before it began is begun without a second charge.
        if all(entry.cohort != cohort for entry in self.ledger.entries):
            self.ledger.charge(plan.event(), cohort)

    def _start_epoch(self, leaves: int, epoch: int) -> None:
        """Charge the next epoch and begin it; what was released stays, as a public constant."""
        plan = self._plan(leaves)
        self._charge(plan, epoch)
        start_epoch(self.state.stream, plan)

    def _close(self, noise: FloatArray) -> bool:
        if not closes_a_stream(type(self.state)):
            raise TacitError(f"{self.name} has a `close` of its own, which a publisher does not see: use close_stream")
        return self.publisher.leaf(self.state.stream, noise)

    def _drop_raw(self) -> None:
        super()._drop_raw()
        stream: Stream = self.state.stream
        stream.leaf[:] = 0.0
        left = int(stream.clock[1] - stream.clock[0]) if self.setting.horizon else int(stream.clock[1])
        if left > 0:
            self._start_epoch(left, 1)
        else:  # the horizon is over, and with it all releases
            stream.nodes[:] = 0.0

    def planned_calls(self) -> tuple[PrivacyEvent, ...]:
        """Releases beside the stream that the budget is reserved for, in order; none by default."""
        return ()

    def _before_ticks(self) -> int:
        stream: Stream = self.state.stream
        left = int(stream.clock[1] - stream.clock[0])
        if self.setting.horizon is not None:
            return left if left > 0 else 1 << 30
        if left == 0:
            left = 2 * int(stream.clock[1])
            self._start_epoch(left, (left // FIRST_EPOCH).bit_length())
        return left

    @property
    def noise_size(self) -> int:
        return int(self.state.stream.leaf.size)

    @property
    def noise_scale(self) -> float:
        return float(self.state.stream.scale[0])

    @cached_property
    def total_mu(self) -> float:
        """Gaussian-DP parameter that all releases together may spend on one row."""
        budget = self.setting.budget
        assert budget is not None
        return self.noise.mu_budget(budget.epsilon, budget.delta, budget.rounds_per_user)

    @property
    def default_factorization(self) -> str:
        """Near-optimal, unless exact noise needs integer coefficients."""
        return "toeplitz" if self.noise.grid is None else "tree"
