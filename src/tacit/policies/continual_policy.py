"""Policies that learn through one continual release: horizon, epochs and ledger entries in one place."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tacit.errors import TacitError
from tacit.policies.config import Config, PrivateConfig, at_least, configuration, one_of, option
from tacit.policies.policy import NO_END, Span
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.steps import closes_a_stream
from tacit.privacy.continual import ContinualRelease, Stream, drop_raw, start_epoch
from tacit.privacy.events import PrivacyEvent
from tacit.typing import FloatArray


@configuration
class ContinualConfig(PrivateConfig):
    """What every policy with a continual release is told."""

    factorization: str | None = option(
        "How noise is spread over time: `toeplitz` (the default) or `tree` (the default with exact noise, which needs "
        "integer coefficients).",
        default=None,
        check=one_of("toeplitz", "tree"),
    )
    first_epoch: int = option(
        "Leaves of the first epoch when the horizon is unknown; each further epoch has twice as many.",
        default=1024,
        check=at_least(1),
    )


class ContinualPolicy(PrivatePolicy):
    """A policy whose state has a ``stream`` field.

    With a horizon there is one stream of that many leaves; when they are used up, releases stop and the estimate
    stays as it is.  Without one, epochs double.  Epochs are charged as disjoint cohorts: a user's row is in one leaf
    of one epoch, and what earlier epochs released is public.
    """

    config_type: ClassVar[type[Config]] = ContinualConfig
    config: ContinualConfig

    @abstractmethod
    def _plan(self, horizon: int) -> ContinualRelease:
        """The stream over ``horizon`` leaves."""

    def _open_stream(self) -> Stream:
        """Charge the first stream and open it."""
        plan = self._plan(self.setting.horizon or self.config.first_epoch)
        self._charge(plan, 1)
        return plan.open()

    def _charge(self, plan: ContinualRelease, epoch: int) -> None:
        """Charge an epoch to a cohort of its own: rows of one epoch, and of one life, are in no other."""
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
        drop_raw(stream)
        left = int(stream.leaves[()] - stream.closed[()]) if self.setting.horizon else int(stream.leaves[()])
        if left > 0:  # otherwise the horizon is over, and with it all releases
            self._start_epoch(left, 1)

    def planned_calls(self) -> tuple[PrivacyEvent, ...]:
        """Releases beside the stream that the budget is reserved for, in order; none by default."""
        return ()

    def _next_span(self) -> Span:
        """The leaves that are left; without a horizon an epoch of twice the length when none are."""
        stream: Stream = self.state.stream
        left = int(stream.leaves[()] - stream.closed[()])
        if left == 0 and self.setting.horizon is None:
            left = 2 * int(stream.leaves[()])
            self._start_epoch(left, (left // self.config.first_epoch).bit_length())
        return Span(left or NO_END, self.noise_size, self.noise_scale)

    @property
    def noise_size(self) -> int:
        return int(self.state.stream.leaf.size)

    @property
    def noise_scale(self) -> float:
        return float(self.state.stream.noise_sd[()])

    @property
    def default_factorization(self) -> str:
        """Near-optimal, unless exact noise needs integer coefficients."""
        return "toeplitz" if self.randomness.ticks.grid is None else "tree"
