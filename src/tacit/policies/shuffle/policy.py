"""`shuffle-glm`: Algorithm 1, generalized linear bandits with drawn contexts under shuffle differential privacy.

What differs from the paper is in docs/theory.md, "Algorithm 1".  In short: exact calibration of every release, widths
with sqrt(kappa) for V only, and in profile `tuned` short early batches, one report round for each user, and estimates
that go on from those of earlier batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit._validate import integer_at_least, positive
from tacit.errors import CalibrationError
from tacit.policies.base import Policy
from tacit.policies.rows import make_rows
from tacit.policies.shuffle.constants import constants_for
from tacit.policies.shuffle.estimate import Belief, prior
from tacit.policies.shuffle.learners import BatchRows, Learner, OneNewtonStep, PaperDescent, Released, newest
from tacit.policies.shuffle.releases import (
    RowBudget,
    batch_plan,
    charged_events,
    checked_path,
    release_sum,
    row_budget,
)
from tacit.policies.shuffle.steps import (
    ASSIGNED,
    AVERAGED,
    BATCH,
    BETA_CAP,
    BETA_RATE,
    BETWEEN,
    BYTES,
    CLOSE,
    ESTIMATES,
    GAMMA,
    GAMMA_NEWEST,
    OPEN,
    POSITION,
    REPORTS,
    RIDGE,
    SIZE,
    WEIGHT_MAX,
    ShuffleState,
)
from tacit.policies.shuffled import check_source, device_generator, shuffle_warnings
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.report import Model, PrivacyReport, guarantee_text
from tacit.shuffle.planning import BatchPlan
from tacit.typing import FloatArray


@dataclass(frozen=True)
class ShuffleOptions:
    """Options of `shuffle-glm`."""

    profile: str = "tuned"
    """``tuned``: our constants; ``theory``: the paper's, for horizons that most people do not have."""
    path: str = "sums"
    """``sums``: draw the released sums directly; ``bits``: real reports through randomizer, shuffler and analyzer."""
    constant: float = 1.0
    """The paper's universal constant C in gamma, sigma and nu; only in `theory`."""
    batches: int | None = None
    """M of `theory`; log log T by default."""
    max_rounds: int = 64
    """Most gradient rounds of `theory`'s optimizer: the paper's number would ask users for millions of reports."""


class ShuffleGLM(Policy):
    """Algorithm 1: generalized linear bandits with drawn contexts under shuffle differential privacy.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row (arm set and reward) is replaced, or its reward never comes.  What the shuffler
    hands to the analyzer in all batches is (epsilon, delta)-DP in that row.  A user is in one batch, by the number of
    the decision, and sends one report to each of its sums; all sums of a batch are calibrated together at its public
    number of users, and charged to its cohort before its first user is served.  Arms of later batches, and the
    parameters of their sums, are post-processing of earlier releases (docs/theory.md#algorithm-1).

    The rows of the open batch are part of the state: they stand for what the devices hold.  Whoever runs this process
    sees them; the guarantee is about everybody else.  They are dropped when the batch closes, and rewards that come
    later are discarded: their users have reported a contribution of 0.
    """

    name: ClassVar[str] = "shuffle-glm"
    guarantee: ClassVar[Model] = "shuffle"
    options_type = ShuffleOptions
    options: ShuffleOptions
    coin_count = 1
    shares_ticks = False  # batches count users

    def _build(self) -> None:
        setting, options = self.setting, self.options
        positive("constant", options.constant)
        integer_at_least("max_rounds", options.max_rounds, 1)
        if options.batches is not None:
            integer_at_least("batches", options.batches, 2)
        self._path = checked_path(options.path)
        self._target = self._open_ledger()
        mu = math.inf if self._target is None else self._target.mu
        self._constants = constants_for(options.profile, setting, mu, options.constant, options.batches)
        self._learner: Learner = (
            OneNewtonStep(setting, self._constants)
            if self._constants.averaged
            else PaperDescent(setting, self._constants, options.max_rounds)
        )
        start = prior(setting.dim, setting.theta_bound)
        self.state = ShuffleState(
            rows=make_rows(setting.dim, 1),
            theta=start.theta[None],
            spread=start.spread[None],
            root=np.eye(setting.dim),
            counts=np.zeros(7, dtype=np.int64),
            link=np.array([setting.link.code], dtype=np.int64),
            constants=self._kernel_constants(),
        )
        self._open_batch()

    def _open_ledger(self) -> RowBudget | None:
        """A ledger for what the tails leave of delta; None without a limit."""
        budget = self.setting.budget
        assert budget is not None
        assert self.ledger is not None
        if budget.unlimited:
            self.ledger.charge(self.noise.event("sums of every batch", math.sqrt(2.0), 0.0, size=0))
            return None
        check_source(self.noise)
        target = row_budget(budget)
        self.ledger = Ledger(Budget(budget.epsilon, budget.delta - target.reserve, budget.rounds_per_user))
        return target

    def _kernel_constants(self) -> FloatArray:
        setting, chosen = self.setting, self._constants
        constants = np.zeros(7)
        constants[[GAMMA, GAMMA_NEWEST, WEIGHT_MAX]] = chosen.gamma, chosen.gamma_newest, setting.max_derivative
        constants[[AVERAGED, BETA_RATE, BETA_CAP]] = chosen.averaged, setting.reward_bound, 2.0 * setting.theta_bound
        return constants

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    def _drop_raw(self) -> None:
        """Give up the open batch: its users are lost, and the next one begins."""
        counts = self.state.counts
        if counts[SIZE] > 0:
            counts[ASSIGNED] -= counts[SIZE] - counts[POSITION]
        self._open_batch()

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; what was spent is stated at delta less what the tails may take."""
        report, budget = super().privacy, self.setting.budget
        assert budget is not None
        return replace(report, delta=budget.delta, guarantee=guarantee_text(budget, self.guarantee))

    def _warnings(self) -> tuple[str, ...]:
        return shuffle_warnings(self.event_noise)

    @property
    def plan(self) -> BatchPlan | None:
        """The releases of the open batch; None when none is open or noise is off."""
        users = int(self.state.counts[SIZE])
        return None if users <= 0 else self._plan(users)

    @property
    def bytes_per_user(self) -> int:
        """Most bytes that one user was asked for so far, in the whole run."""
        assert self.setting.budget is not None
        return int(self.state.counts[BYTES]) * self.setting.budget.rounds_per_user

    @property
    def reports_per_user(self) -> int:
        """Most reports that one user was asked for so far, in the whole run."""
        assert self.setting.budget is not None
        return int(self.state.counts[REPORTS]) * self.setting.budget.rounds_per_user

    def _plan(self, users: int) -> BatchPlan | None:
        """Calibrated for exactly the users of the batch: every one of them reports, with a reward or without."""
        if self._target is None:
            return None
        requests = self._learner.requests(self.state, users)
        return batch_plan(self._target, users, requests, f"batch {int(self.state.counts[BATCH])}")

    def _on_event(self, flag: int) -> None:
        if flag not in (CLOSE, OPEN):
            super()._on_event(flag)
        if flag == CLOSE:
            self._close_batch()
        self._open_batch()
        if self.state.counts[SIZE] > 0:
            self.state.counts[POSITION] = 1  # the decision that found the last batch full is the first of this one

    def _open_batch(self) -> None:
        """Fix the policy of the next batch and charge its releases, or open none when too few users are left."""
        counts, ledger = self.state.counts, self.ledger
        counts[SIZE] = BETWEEN
        counts[BATCH] += 1
        users, plan = self._next_plan()
        self.state = self.state._replace(rows=make_rows(self.setting.dim, max(1, users)))
        if users > 0 and self._constants.averaged:
            # Arms in units of the last estimate's spread, which counts as one user of the design in `users`.
            self.state.root[:] = np.linalg.cholesky(newest(self.state).spread).T
            self.state.constants[RIDGE] = 1.0 / users
        if plan is not None and ledger is not None:
            for event in charged_events(plan):
                ledger.charge(event, f"batch {int(counts[BATCH])}")
            counts[REPORTS] = max(counts[REPORTS], plan.rounds)
            counts[BYTES] = max(counts[BYTES], plan.bytes_per_user)
        counts[ASSIGNED] += users
        counts[POSITION] = 0
        counts[SIZE] = users  # last: a batch serves nobody before all of it is charged

    def _next_plan(self) -> tuple[int, BatchPlan | None]:
        """Users and plan of the next batch: at least as many as a message of bounded size needs to hide them."""
        schedule, horizon = self._constants.schedule, self.setting.horizon
        batch, used = int(self.state.counts[BATCH]) - 1, int(self.state.counts[ASSIGNED])
        left = math.inf if horizon is None else horizon - used
        users = schedule.size(batch, used, horizon)
        if users < min(schedule.sizes[0], horizon or math.inf) and batch > 0:
            return 0, None
        while 0 < users <= left:
            try:
                return users, self._plan(users)
            except CalibrationError:
                users *= 2
        return 0, None

    def _close_batch(self) -> None:
        """Forget the batch's rows, release its sums, add its estimate.

        In this order: whatever interrupts it, a batch is released at most once.
        """
        state = self.state
        arrived, users = int(state.rows.count[0]), int(state.counts[SIZE])
        batch = BatchRows(state.rows.features[:arrived], state.rows.rewards[:arrived], users)
        plan, rng = self._plan(users), device_generator(self.event_noise)
        state.counts[SIZE] = BETWEEN
        self.state = state._replace(rows=make_rows(self.setting.dim, 1))

        def sums(name: str, index: int, rows: FloatArray) -> Released:
            if plan is None:
                domain = {request.name: request.domain for request in self._learner.requests(state, users)}[name]
                return Released(domain.decode(np.sum(domain.embed(rows), axis=0)), 0.0)
            protocol = plan[name].round(index)
            total = self.publisher.shuffled(protocol, rows, lambda: release_sum(protocol, rows, rng, self._path))
            return Released(total.decoded(), total.noise_sd)

        self._append(self._learner.estimate(state, batch, sums))

    def _append(self, belief: Belief) -> None:
        state = self.state
        theta = np.concatenate([state.theta, belief.theta[None]])
        spread = np.concatenate([state.spread, belief.spread[None]])
        self.state = state._replace(theta=theta, spread=spread)
        self.state.counts[ESTIMATES] += 1
