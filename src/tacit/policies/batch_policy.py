"""Policies of the shuffle model: they learn from batches of users, each of which is released once, when it is full.

The life of a batch is the same for all of them and is told here.  It is opened (its size and its sums are planned and
charged), it serves as many users as it has places, it is closed (its rows are taken out, its sums are released), and
the next one is opened.  A batch ends after a public number of decisions, rewarded or not: a user without a reward
reports a contribution of 0.

A policy supplies the size of the next batch, the sums that it asks for, how they are calibrated, and what it makes of
the released sums.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.policies.batches import BETWEEN, CLOSE, NONE_OPEN, OPEN, BatchClock, BatchRows, make_batch_rows
from tacit.policies.clock import NO_END, Span
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import Snapshot
from tacit.privacy.events import PrivacyEvent
from tacit.privacy.noise import NoiseSource
from tacit.privacy.report import Model
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.planning import BatchPlan, SumRequest
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

_ROLES: Final = (
    "this process plays devices, shuffler and analyzer at once, so that whoever runs it sees the rows; to serve "
    "people, run the roles of tacit.shuffle apart (docs/guides/shuffle.md)."
)
_NO_AGE: Final = (
    "{name} takes no reward_age: devices keep their rewards until their batch closes, so that the last users of each "
    "batch would never count. Have every device report what came within a wait that is the same for all"
)
_GENERATOR: Final = "bits come from a Philox generator that operating-system entropy keys anew for each batch."


class Asked(NamedTuple):
    """The most that a user of one batch was asked for; kept beside the state, since no step reads it."""

    reports: int = 0
    report_bytes: int = 0


class ReleasedSum(NamedTuple):
    """A sum in its natural shape, and the standard deviation of its entries."""

    values: FloatArray
    noise_sd: float


Sums = Callable[[str, int, FloatArray], ReleasedSum]
"""Releases the sum of users' rows under the request of that name, in that round."""


class BatchPolicy(PrivatePolicy):
    """A policy whose state has the fields ``batch``, a `BatchClock`, and ``rows``, the `BatchRows` of the open batch.

    The rows stand for what the devices of the batch's users hold until they report.  The operator of this process
    sees them; they are dropped when the batch closes.
    """

    guarantee: ClassVar[Model] = "shuffle"
    _shares_ticks: ClassVar[bool] = False  # batches count users
    _chooses_by_releases: ClassVar[bool] = True
    _charged_when_opened: ClassVar[bool] = True
    """Whether a batch is charged before its first user is served, or else before its first sum is released."""
    state: Any

    # What a subclass supplies

    @abstractmethod
    def _next_size(self) -> int:
        """Users of the batch that is about to be opened; 0 opens none."""

    @abstractmethod
    def _requests(self, users: int) -> Sequence[SumRequest]:
        """The sums that a batch of so many users is asked for, from public quantities."""

    @abstractmethod
    def _calibrated(self, users: int) -> BatchPlan:
        """The sums that a batch is asked for, calibrated together for exactly so many users, all of whom report."""

    @abstractmethod
    def _learn_from(self, rows: BatchRows, sums: Sums) -> None:
        """Ask for the sums of a batch that is closed, and take them in."""

    def _fix_choices(self, users: int) -> None:
        """Fix how arms are chosen in a batch of so many users, before the first of them."""

    def _charged_events(self, plan: BatchPlan) -> Sequence[PrivacyEvent]:
        """What the ledger is charged with for a batch."""
        return plan.events()

    def _draw_sum(self, protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
        """What the three roles would release about the users whose rows these are."""
        return sample_sum(protocol, rows, rng)

    @property
    def _bit_source(self) -> NoiseSource:
        """Where the bits of devices come from."""
        return self.randomness.events

    # What users may ask

    @property
    def batch_users(self) -> int:
        """Users of the open batch; 0 when none is open."""
        rows: BatchRows = self.state.rows
        return rows.users if self.state.batch.end[()] > NONE_OPEN else 0

    @property
    def plan(self) -> BatchPlan | None:
        """The releases of the open batch; None when none is open or noise is off."""
        users = self.batch_users
        return None if users == 0 else self._plan(users)

    @property
    def bytes_per_user(self) -> int:
        """Most bytes that one user was asked for so far, in the whole run."""
        return self._asked.report_bytes * self.setting.budget.rounds_per_user

    @property
    def reports_per_user(self) -> int:
        """Most reports that one user was asked for so far, in the whole run."""
        return self._asked.reports * self.setting.budget.rounds_per_user

    # The life of a batch

    _asked = Asked()

    @property
    def _memo_size(self) -> int:
        return self.setting.dim + 1

    def _open_ledger(self) -> None:
        if self.config.reward_age is not None:
            raise InvalidInput(_NO_AGE.format(name=self.name))
        super()._open_ledger()
        if self.setting.budget.unlimited:
            event = self._bit_source.event("sums of every batch", math.sqrt(2.0), 0.0, size=0)
            self.ledger.charge(event)
        else:
            check_source(self._bit_source)

    def _begin(self) -> None:
        super()._begin()
        self._open_batch()

    def _warnings(self) -> tuple[str, ...]:
        return shuffle_warnings(self._bit_source)

    def _ended(self) -> bool:
        return bool(self.state.batch.end[()] == NONE_OPEN)

    @property
    def _users_at_once(self) -> int:
        """Places of the open batch; one user when there is none, who has a batch opened, and all when none will be."""
        batch: BatchClock = self._state.batch
        return NO_END if batch.end[()] == NONE_OPEN else max(1, int(batch.end[()] - batch.served[()]))

    def _next_span(self) -> Span:
        """So many decisions: a batch is closed by the decision that finds no place in it."""
        return Span(self._users_at_once, 0, 0.0, rare=True)

    def _on_event(self, flag: int) -> None:
        if flag not in (CLOSE, OPEN):
            super()._on_event(flag)
        if flag == CLOSE:
            self._close_batch()
        self._open_batch()
        if self.batch_users > 0:
            self.state.batch.served[()] += 1  # the decision that found no place is the first of this batch

    def _open_batch(self) -> None:
        """Fix size, sums and choices of the next batch and charge it, or open none when too few users are left."""
        batch: BatchClock = self.state.batch
        batch.end[()] = BETWEEN
        batch.number[()] += 1
        users, plan = self._next_plan()
        self.state = self.state._replace(rows=make_batch_rows(self.setting.dim, users))
        if users > 0:
            self._fix_choices(users)
        if plan is not None:
            if self._charged_when_opened:
                self._charge(plan)
            asked = self._asked
            self._asked = Asked(max(asked.reports, plan.rounds), max(asked.report_bytes, plan.bytes_per_user))
        # Last: a batch serves no user before all of the above is done.
        batch.end[()] = batch.served[()] + users if users > 0 else NONE_OPEN

    def _close_batch(self) -> None:
        """Take the batch's rows out, release its sums, learn from them.

        In this order: even if it is interrupted, a batch is released at most once, and its rows are in no other.
        """
        rows: BatchRows = self.state.rows
        plan = self._plan(rows.users)
        self.state.batch.end[()] = BETWEEN
        self.state = self.state._replace(rows=make_batch_rows(self.setting.dim, 0))
        if plan is not None and not self._charged_when_opened:
            self._charge(plan)
        self._learn_from(rows, self._exact_sums(rows.users) if plan is None else self._shuffled_sums(plan))

    def _default_noise(self) -> str:
        return "secure"  # binomial bits are whole numbers by construction

    def _drop_raw(self) -> None:
        """Give up the open batch: its users are lost, and the next one begins."""
        super()._drop_raw()
        self._open_batch()

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"asked": self._asked._asdict()}

    def _restore(self, snapshot: Snapshot) -> None:
        super()._restore(snapshot)
        self._asked = Asked(**snapshot.header["asked"])

    def _next_plan(self) -> tuple[int, BatchPlan | None]:
        """Users and plan of the next batch; there is no plan when noise is off or none is opened."""
        users = self._next_size()
        return users, self._plan(users) if users > 0 else None

    def _plan(self, users: int) -> BatchPlan | None:
        """The releases of a batch of so many users; None when noise is off."""
        return None if self.setting.budget.unlimited else self._calibrated(users)

    def _charge(self, plan: BatchPlan) -> None:
        """Charge the present batch to a cohort of its own: its users are in no other, and in no other life."""
        cohort = self._cohort(f"batch {int(self.state.batch.number[()])}")
        for event in self._charged_events(plan):
            self.ledger.charge(event, cohort)

    def _shuffled_sums(self, plan: BatchPlan) -> Sums:
        rng = self._bit_source.generator()

        def released(name: str, index: int, rows: FloatArray) -> ReleasedSum:
            protocol = plan[name].round(index)
            total = self.publisher.shuffled(protocol, rows, lambda: self._draw_sum(protocol, rows, rng))
            return ReleasedSum(total.decoded(), total.noise_sd)

        return released

    def _exact_sums(self, users: int) -> Sums:
        domains = {request.name: request.domain for request in self._requests(users)}

        def released(name: str, index: int, rows: FloatArray) -> ReleasedSum:
            return ReleasedSum(domains[name].decode(np.sum(domains[name].embed(rows), axis=0)), 0.0)

        return released


def check_source(source: NoiseSource) -> None:
    """Refuse noise sources that a shuffled sum cannot use."""
    if source.name not in ("fast", "secure"):
        raise InvalidInput(
            f"noise must be 'fast' or 'secure', not {source.name!r}: the noise of a shuffled sum is binomial, integers "
            "by construction"
        )


def shuffle_warnings(source: NoiseSource) -> tuple[str, ...]:
    """Warnings for the report: one process plays all roles of the shuffle model, and which generator draws the bits."""
    return (_ROLES,) if source.name == "fast" else (_ROLES, _GENERATOR)
