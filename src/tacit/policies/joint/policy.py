"""`joint-glm`: Algorithm 2, generalized linear bandits with adversarial contexts under joint differential privacy.

What differs from the paper is in docs/theory.md, correction by correction.  In short: theta_o is refreshed on public
events only; V and H are one stream with replacement sensitivity sqrt(2); calls of the two optimizers are charged in
pairs, since a row belongs to one of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit._validate import finite, positive, probability
from tacit.errors import InvalidInput
from tacit.estimation.optimizers import MAX_STEPS, NoisyGradientDescent, NoisyNewton
from tacit.estimation.plan import PrivateOptimizer, PublicView, Regression, estimate
from tacit.glm.rows import Selection, make_rows
from tacit.linalg.packing import packed_size, unpacked
from tacit.linalg.projection import make_ellipsoid
from tacit.policies.beliefs import PointBelief
from tacit.policies.config import choice, configuration, option
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.joint.profiles import PROFILES, JointProfile, joint_profile
from tacit.policies.joint.steps import (
    EXPLOITED,
    EXPLORED,
    MEMO_NUMBERS,
    REFRESH_EXPLOIT,
    REFRESH_EXPLORE,
    STEPS,
    JointConstants,
    JointState,
    OptimizerState,
)
from tacit.privacy.continual import ContinualRelease, Stream, check_exact_sums, released_variance
from tacit.privacy.events import DiscreteGaussianRelease, NoisySum, PrivacyEvent
from tacit.privacy.factorization import worst_prefix_sd
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray, count, scalar

_NEWTON_STEPS = 1
"""Noisy gradients of a call, where the optimizer is not the paper's."""


def _above_one(name: str, value: object) -> float:
    if not finite(name, value) > 1.0:
        raise InvalidInput(f"{name} must be above 1, got {value!r}")
    return finite(name, value)


@configuration
class JointConfig(ContinualConfig):
    """Configuration of `joint-glm`."""

    profile: str = choice(
        "`tuned`: our constants; `theory`: the paper's; `paper`: Algorithm 2 to the letter, which leaks.",
        PROFILES,
        default="tuned",
    )
    growth: float = option(
        "Factor in PSD order by which a released matrix must have grown before its estimate is refreshed.",
        default=2.0,
        check=_above_one,
    )
    failure_probability: float = option(
        "zeta: only in the constants of `theory` and `paper`; not the privacy delta.", default=0.02, check=probability
    )
    constant: float = option("The paper's universal constant C in beta and gamma.", default=1.0, check=positive)


class JointGLM(ContinualPolicy):
    """Algorithm 2: generalized linear bandits with adversarial contexts under joint differential privacy.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row (arm set and reward) is replaced.  What all other users see is (epsilon, delta)-DP
    in that row: every release is Gaussian, the ledger adds their mu^2, and each other user's arm is a function of
    releases and of that user's own arm set (docs/theory.md#billboard).  The stream of V and H / w_max has row bound
    sqrt(2), whether a row changes in place, moves between V and H, or moves to another leaf
    (docs/theory.md#adaptivity-with-moved-rows).  Call k of theta_o and call k of theta_tau are one entry, since a row
    is in the data of one of them: in `tuned` with sensitivity max(D, sqrt(2) L), D the diameter of the set of gradients
    and L the longest one, in `theory` and `paper` with 2 L (docs/theory.md#two-optimizers-one-charge).

    Memory: O(d^2) for the releases, O(d^2 log T) with `tree`; the optimizer needs all rows, O(d T).
    """

    name: ClassVar[str] = "joint-glm"
    guarantee = "joint"
    config_type = JointConfig
    _follows_releases = frozenset({"explore.calls", "exploit.calls", "ledger"})  # released matrices ask for calls
    config: JointConfig
    state: JointState
    _steps = STEPS

    def _make_state(self) -> JointState:
        setting, dim = self.setting, self.setting.dim
        rows = setting.horizon or 1
        check_exact_sums(self.randomness.ticks.grid, rows, self._problem(0.0).residual_bound)
        stream = self._open_stream()
        ridge = self._first_anchor(stream)
        return JointState(
            stream=stream,
            rows=make_rows(dim),
            explore=self._first_side(1.0, ridge),
            exploit=self._first_side(setting.max_derivative, ridge),
            coverage=np.eye(dim),
            explored=count(),
            ridge_noise=scalar(self._profile.ridge_noise),
            constants=JointConstants(setting.link, setting.max_derivative, self._profile),
        )

    def _first_side(self, weight: float, ridge: float) -> OptimizerState:
        """Make the side before the first release: ``weight`` times the identity, to be refreshed beyond ``ridge``."""
        start = weight * np.eye(self.setting.dim)
        spread = np.eye(self.setting.dim) * self.setting.theta_bound**2
        return OptimizerState(start.copy(), start * ridge, spread, np.zeros(self.setting.dim), count())

    @cached_property
    def _profile(self) -> JointProfile:
        config = self.config
        return joint_profile(config.profile, self.setting, config.growth, config.failure_probability, config.constant)

    def _drop_raw(self) -> None:
        """Drop rows and raw sums; the ridge gives up its reserve before it grows with a new cohort's noise.

        Criterion I explores until V is a multiple of the ridge, so that a ridge for both would ask for what earlier
        cohorts explored once more.  The noise's spectral norm itself stays covered: a factor of 1.
        """
        old = float(released_variance(self.state.stream))
        super()._drop_raw()
        self.state = self.state._replace(rows=make_rows(self.setting.dim))
        self.state.explored[()] = 0
        new = self._largest_variance(self.state.stream)
        if self.state.ridge_noise[()] > 1.0 and new > 0.0:
            self.state.ridge_noise[()] = max(1.0, self._profile.ridge_noise * math.sqrt(new / (old + new)))

    def _first_anchor(self, stream: Stream) -> float:
        """Return the ridge that the first estimate must outgrow: the largest that the noise of the stream needs."""
        noise = math.sqrt(2.0 * self.setting.dim * self._largest_variance(stream))
        return max(self._profile.ridge, self._profile.ridge_noise * noise)

    def _largest_variance(self, stream: Stream) -> float:
        """The largest variance of a released entry in the stream's present epoch."""
        plan = self._plan(int(stream.leaves[()]))
        return (plan.noise_sd * worst_prefix_sd(plan.factorization) / plan.factorization.column_norm) ** 2

    @property
    def belief(self) -> PointBelief:
        return PointBelief(self._state.exploit.theta)

    @property
    def _memo_size(self) -> int:
        return self.setting.dim + MEMO_NUMBERS

    def _plan(self, horizon: int) -> ContinualRelease:
        return self._plan_stream(
            "V and H",
            2 * packed_size(self.setting.dim),
            horizon,
            row_bound=math.sqrt(2.0),
            row_norm=1.0,
            mu=self._total_mu * math.sqrt(self._profile.stream_share),
            factorization=self._profile.factorization,
        )

    @cached_property
    def _call_budgets(self) -> FloatArray:
        """mu of each optimizer call: a geometric split of what the stream leaves."""
        if self._total_mu == math.inf:
            return np.full(self._profile.max_calls, math.inf)
        shares = self._profile.call_decay ** np.arange(self._profile.max_calls)
        total = self._total_mu**2 * (1.0 - self._profile.stream_share)
        return np.asarray(np.sqrt(total * shares / np.sum(shares)), dtype=np.float64)

    def _on_event(self, flag: int) -> None:
        if flag & REFRESH_EXPLORE:
            self.state.explored[()] = 0
            self._refresh(self.state.explore, self.state.exploit)
        if flag & REFRESH_EXPLOIT:
            self._refresh(self.state.exploit, self.state.explore)

    def _refresh(self, side: OptimizerState, other: OptimizerState) -> None:
        """Call the private optimizer for theta_o or theta_tau, if calls are left."""
        state, explores = self.state, side is self.state.explore
        side.anchor[:] = side.design
        call = int(side.calls[()])
        if call >= self._profile.max_calls:
            return
        optimizer, public = self._optimizer(side, self._call_mu(call))
        name = "theta_o" if explores else "theta_tau"

        def charge(event: NoisySum) -> None:
            if call >= int(other.calls[()]):
                self.ledger.charge(self._pair_event(event))
            side.calls[()] += 1  # after the charge: the other side's call of this number relies on it

        def publish(exact: FloatArray, noise: FloatArray, noise_sd: float) -> FloatArray:
            return self.publisher.vector(f"optimizer call {call + 1}, {name}", exact, noise, noise_sd)

        rows, source = Selection(state.rows, EXPLORED if explores else EXPLOITED), self.randomness.events
        side.theta[:] = estimate(
            optimizer, rows, public, charge=charge, noise=source, name=_call_name(call), publish=publish
        )

    def _call_mu(self, call: int) -> float:
        """mu of the gradients of one side's call, such that the pair of calls spends its share of the budget."""
        return float(self._call_budgets[call]) * self._problem(0.0).sensitivity / self._pair_sensitivity

    def _pair_event(self, event: NoisySum) -> NoisySum:
        """Make the ledger entry that covers both sides' calls of one number, from the event of one of them."""
        widened = self._pair_sensitivity - self._problem(0.0).sensitivity
        # The other side's call has the same steps (Newton), or as many as its own tick asks for (descent).
        steps = MAX_STEPS if self._profile.paper_optimizer else _NEWTON_STEPS
        return _for_both_sides(event, widened, steps * self.setting.dim)

    def _planned_calls(self) -> tuple[PrivacyEvent, ...]:
        calls = range(self._profile.max_calls)
        plans = (NoisyNewton(self._problem(1.0), self._call_mu(call), steps=_NEWTON_STEPS) for call in calls)
        releases = (plan.release(self.randomness.events, _call_name(call)) for call, plan in enumerate(plans))
        return tuple(self._pair_event(release.event) for release in releases)

    def _optimizer(self, side: OptimizerState, mu: float) -> tuple[PrivateOptimizer, PublicView]:
        """Make the optimizer of one call, and collect all that is public before it."""
        if self._profile.paper_optimizer:
            return self._paper_optimizer(side, mu)
        setting = self.setting
        noise_sd = self.randomness.ticks.scale_for(self._problem(0.0).sensitivity, mu, size=setting.dim)
        curvature = self._curvature(side)
        center, prior = self._prior(side)
        with one_blas_thread(setting.dim):
            values, basis = np.linalg.eigh(curvature)
        values = np.maximum(values, 1e-9)
        # A noisy gradient at theta tells M (theta - theta*) up to variance M + noise_sd^2: its precision is M^2 / that.
        information = values**2 / (values + noise_sd**2)
        side.spread[:] = (basis / (information + prior)) @ basis.T
        ridge = prior * (1.0 + noise_sd**2 / float(np.mean(values)))
        start = side.theta if side.calls[()] > 0 else center
        view = PublicView(start=start.copy(), precision=curvature, center=center)
        return NoisyNewton(self._problem(ridge), mu, steps=_NEWTON_STEPS), view

    def _problem(self, ridge: float) -> Regression:
        """The regression; the paper's profiles charge its 2 L, ours the diameter of the set of gradients."""
        setting = self.setting
        sharp = not self._profile.paper_optimizer
        return Regression(setting.link, setting.dim, setting.theta_bound, setting.reward_bound, ridge, sharp)

    @property
    def _pair_sensitivity(self) -> float:
        """l2 change of call k of theta_o and of theta_tau together, for a row that is replaced or changes sides."""
        problem = self._problem(0.0)
        return max(problem.sensitivity, math.sqrt(2.0) * problem.moving_sensitivity)

    def _curvature(self, side: OptimizerState) -> FloatArray:
        """Released Hessian of one side's loss: H, or V weighted by a typical derivative."""
        half, released = packed_size(self.setting.dim), self.state.stream.released
        mine = released[:half] if side is self.state.explore else released[half:]
        return unpacked(mine, self.setting.dim) * self.setting.max_derivative

    def _prior(self, side: OptimizerState) -> tuple[FloatArray, float]:
        """Center and precision before the call: 0 with spread S, then theta_o with the spread that it has."""
        explore, dim = self.state.explore, self.setting.dim
        if side is explore or explore.calls[()] == 0:
            return np.zeros(dim), dim / self.setting.theta_bound**2
        return explore.theta.copy(), dim / float(np.trace(explore.spread))

    def _paper_optimizer(self, side: OptimizerState, mu: float) -> tuple[PrivateOptimizer, PublicView]:
        """Noisy projected gradient descent over Theta_I, a ball, or Theta_II, an ellipsoid around theta_o."""
        setting, explore, profile = self.setting, self.state.explore, self._profile
        ticks = max(1, int(self.decisions))
        optimizer = NoisyGradientDescent.planned(
            self._problem(profile.ridge), mu, ticks, failure_probability=self.config.failure_probability
        )
        if side is explore:
            return optimizer, PublicView(start=np.zeros(setting.dim))
        with one_blas_thread(setting.dim):
            side.spread[:] = np.linalg.inv(side.design)
        region = make_ellipsoid(explore.theta.copy(), explore.design.copy(), profile.width_explore)
        return optimizer, PublicView(start=explore.theta.copy(), ellipsoid=region)

    def _warnings(self) -> tuple[str, ...]:
        if not self._profile.literal:
            return ()
        return (
            "profile 'paper' refreshes theta_o when a user's own round explores: that time depends on raw contexts and "
            "is seen by others. The figures above do not cover it; never serve people with this profile.",
        )


def _call_name(call: int) -> str:
    """Name of the ledger entry for both sides' calls of one number."""
    return f"optimizer call {call + 1}, theta_o or theta_tau"


def _for_both_sides(event: NoisySum, widened: float, other_draws: int) -> NoisySum:
    """Make the ledger entry of call k of both optimizers.

    Its sensitivity exceeds that of one call by ``widened``; what the event adds for rounding stays.  Exact noise
    accounts for the draws of both calls, of which the other one has at most ``other_draws``.
    """
    sensitivity = event.sensitivity + widened
    if isinstance(event, DiscreteGaussianRelease):
        return replace(event, draws=event.draws + other_draws, sensitivity=sensitivity)
    return replace(event, sensitivity=sensitivity)
