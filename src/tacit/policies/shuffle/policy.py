"""`shuffle-glm`: Algorithm 1, generalized linear bandits with drawn contexts under shuffle differential privacy.

What differs from the paper is in docs/theory.md, "Algorithm 1".  In short: exact calibration of every release, widths
with sqrt(kappa) for V only, and in profile `tuned` short early batches, one report round for each user, and estimates
that go on from those of earlier batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit._validate import positive
from tacit.errors import CalibrationError, InvalidInput
from tacit.policies.batch_policy import BatchPolicy, Sums
from tacit.policies.batches import BatchRows, make_batch_rows, make_clock, most_users
from tacit.policies.beliefs import GaussianBelief, PointBelief
from tacit.policies.config import PrivateConfig, at_least, choice, configuration, option
from tacit.policies.shuffle.learners import Learner, OneNewtonStep, PaperDescent, newest, prior
from tacit.policies.shuffle.profiles import PROFILES, ShuffleProfile, shuffle_profile
from tacit.policies.shuffle.releases import (
    MOST_ROUNDS,
    PATHS,
    RowBudget,
    batch_plan,
    charged_events,
    release_sum,
    row_budget,
)
from tacit.policies.shuffle.steps import STEPS, ShuffleConstants, ShuffleState
from tacit.privacy.budget import Budget
from tacit.privacy.events import PrivacyEvent
from tacit.privacy.ledger import Ledger
from tacit.privacy.report import PrivacyReport, guarantee_text
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.planning import BatchPlan, SumRequest
from tacit.typing import FloatArray, scalar


@configuration
class ShuffleConfig(PrivateConfig):
    """Configuration of `shuffle-glm`."""

    profile: str = choice(
        "`tuned`: our constants; `theory`: the paper's, for horizons that most people do not have.", PROFILES, "tuned"
    )
    path: str = choice(
        "`sums`: draw the released sums directly; `bits`: real reports through randomizer, shuffler and analyzer.",
        PATHS,
        default="sums",
    )
    constant: float = option(
        "The paper's universal constant C in gamma, sigma and nu; only in `theory`.", default=1.0, check=positive
    )
    batches: int | None = option("M of `theory`; log log T by default.", default=None, check=at_least(2))
    max_rounds: int = option(
        "Most gradient rounds of `theory`'s optimizer: the paper's number would ask users for millions of reports.",
        default=64,
        check=at_least(1),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds_per_user > MOST_ROUNDS:
            raise InvalidInput(
                f"rounds_per_user must be at most {MOST_ROUNDS:,} for shuffle-glm, which adds up the tails of one "
                f"row after the other, got {self.rounds_per_user}"
            )


class ShuffleGLM(BatchPolicy):
    """Algorithm 1: generalized linear bandits with drawn contexts under shuffle differential privacy.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row (arm set and reward) is replaced, or its reward never comes.  What the shuffler
    hands to the analyzer in all batches is (epsilon, delta)-DP in that row.  A user is in one batch, by the number of
    the decision, and sends one report to each of its sums; all sums of a batch are calibrated together at its public
    number of users, and charged to its cohort before its first user is served.  Arms of later batches, and the
    parameters of their sums, are post-processing of earlier releases (docs/theory.md#algorithm-1).

    The rows of the open batch are part of the state: they stand for what the devices hold.  The process that runs this
    policy sees them; the guarantee is about what leaves it.  They are dropped when the batch closes, and rewards that
    come later are discarded: their users have reported a contribution of 0.
    """

    name: ClassVar[str] = "shuffle-glm"
    config_type = ShuffleConfig
    _follows_releases = frozenset({"ledger"})  # scores are bounded by the released theta, and charged so
    config: ShuffleConfig
    state: ShuffleState
    _steps = STEPS
    _coin_count = 1
    _states_propensity = True

    def _open_ledger(self) -> None:
        """Open the ledger with the part of delta that the tails leave."""
        super()._open_ledger()
        budget = self.setting.budget
        if not budget.unlimited:
            delta = budget.delta - self._row_budget.reserve
            self.ledger = Ledger(Budget(budget.epsilon, delta, budget.rounds_per_user))

    def _make_state(self) -> ShuffleState:
        setting, profile = self.setting, self._profile
        start = prior(setting.dim, setting.theta_bound)
        return ShuffleState(
            batch=make_clock(),
            rows=make_batch_rows(setting.dim, 0),
            theta=start.theta[None],
            spread=start.covariance[None],
            root=np.eye(setting.dim),
            design_ridge=scalar(),
            constants=ShuffleConstants(
                link=setting.link,
                gamma=profile.gamma,
                gamma_newest=profile.gamma_newest,
                weight_max=setting.max_derivative,
                averaged=profile.averaged,
                beta_rate=setting.reward_bound,
                beta_cap=2.0 * setting.theta_bound,
            ),
        )

    @cached_property
    def _row_budget(self) -> RowBudget:
        """What a batch may spend on one row; only where the budget has a limit."""
        return row_budget(self.setting.budget)

    @cached_property
    def _profile(self) -> ShuffleProfile:
        mu = math.inf if self.setting.budget.unlimited else self._row_budget.mu
        return shuffle_profile(self.config.profile, self.setting, mu, self.config.constant, self.config.batches)

    @cached_property
    def _learner(self) -> Learner:
        if self._profile.averaged:
            return OneNewtonStep(self.setting, self._profile)
        return PaperDescent(self.setting, self._profile, self.config.max_rounds)

    @property
    def belief(self) -> PointBelief | GaussianBelief:
        believed = newest(self._state)
        # In `tuned` its matrix is a covariance, elsewhere the shape of a confidence set.
        return believed if self._profile.averaged else PointBelief(believed.theta)

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; what was spent is stated at delta less what the tails may take."""
        budget = self.setting.budget
        return replace(super().privacy, delta=budget.delta, guarantee=guarantee_text(budget, self.guarantee))

    def _next_size(self) -> int:
        """Users of the next batch by schedule; none when fewer are left than the first batch had."""
        schedule, horizon, batch = self._profile.schedule, self.setting.horizon, self.state.batch
        earlier, used = int(batch.number[()]) - 1, int(batch.served[()])
        users = schedule.size(earlier, used, horizon)
        smallest = min(schedule.sizes[0], horizon or math.inf)
        return 0 if users < smallest and earlier > 0 else users

    def _next_plan(self) -> tuple[int, BatchPlan | None]:
        """Users and plan of the next batch: the scheduled number, or as many as bounded messages need to hide them."""
        horizon = self.setting.horizon
        left = math.inf if horizon is None else horizon - int(self.state.batch.served[()])
        most = most_users(self.setting.dim)
        users = min(self._next_size(), most)
        while 0 < users <= min(left, most):
            try:
                return users, self._plan(users)
            except CalibrationError:
                users *= 2
        return 0, None

    def _requests(self, users: int) -> Sequence[SumRequest]:
        return self._learner.requests(self.state, users)

    def _calibrated(self, users: int) -> BatchPlan:
        label = f"batch {int(self.state.batch.number[()])}"
        return batch_plan(self._row_budget, users, self._requests(users), label)

    def _charged_events(self, plan: BatchPlan) -> Sequence[PrivacyEvent]:
        return charged_events(plan)

    def _fix_choices(self, users: int) -> None:
        if self._profile.averaged:
            # Arms in units of the last estimate's spread, which counts as one user of the design in `users`.
            self.state.root[:] = np.linalg.cholesky(newest(self.state).covariance).T
            self.state.design_ridge[()] = 1.0 / users

    def _draw_sum(self, protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
        return release_sum(protocol, rows, rng, self.config.path)

    def _learn_from(self, rows: BatchRows, sums: Sums) -> None:
        self._append(self._learner.estimate(self.state, rows, sums))

    def _append(self, belief: GaussianBelief) -> None:
        state = self.state
        theta = np.concatenate([state.theta, belief.theta[None]])
        spread = np.concatenate([state.spread, belief.covariance[None]])
        self.state = state._replace(theta=theta, spread=spread)
