"""`joint-glm`: Algorithm 2, generalized linear bandits with adversarial contexts under joint differential privacy.

What differs from the paper is in docs/theory.md, correction by correction.  In short: theta_o is refreshed on public
events only; V and H are one stream with replacement sensitivity sqrt(2); calls of the two optimizers are charged in
pairs, since a row belongs to one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit._validate import positive, probability
from tacit.estimation.descent import MAX_STEPS, NoisyGradientDescent
from tacit.estimation.newton import NoisyNewton
from tacit.estimation.plan import PrivateOptimizer, Problem, PublicView, Release
from tacit.glm.rows import Rows
from tacit.linalg.packing import packed_size, unpacked
from tacit.linalg.projection import Ellipsoid
from tacit.linalg.solve import invert_cholesky
from tacit.policies.joint.constants import constants_for
from tacit.policies.joint.steps import (
    COVERAGE_FACTOR,
    EXPLOITED,
    EXPLORED,
    GROWTH,
    LITERAL,
    PAPER_SETS,
    REFRESH_EXPLOIT,
    REFRESH_EXPLORE,
    RIDGE,
    RIDGE_NOISE,
    THRESHOLD,
    WEIGHT_DIVISOR,
    WEIGHT_MAX,
    WIDTH,
    WIDTH_EXPLORE,
    JointState,
)
from tacit.policies.rows import RowPolicy, make_rows
from tacit.policies.streamed import StreamedPolicy
from tacit.privacy.continual import ContinualRelease, Stream, check_exact_sums, plan_release, released_variance
from tacit.privacy.events import DiscreteGaussianRelease, NoisySum, PrivacyEvent
from tacit.privacy.factorization import worst_prefix_sd
from tacit.typing import FloatArray

_SIDES = ("theta_o", "theta_tau")


@dataclass(frozen=True)
class JointOptions:
    """Options of `joint-glm`."""

    profile: str = "tuned"
    """``tuned``: our constants; ``theory``: the paper's; ``paper``: Algorithm 2 to the letter, which leaks."""
    factorization: str | None = None
    """``tree`` or ``toeplitz``; the profile's by default."""
    growth: float = 2.0
    """Factor in PSD order by which a released matrix must have grown before its estimate is refreshed."""
    failure_probability: float = 0.02
    """zeta: only in the constants of `theory` and `paper`; not the privacy delta."""
    constant: float = 1.0
    """The paper's universal constant C in beta and gamma."""


class JointGLM(StreamedPolicy, RowPolicy):
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

    Memory: O(d^2 log T) for the releases with `tree`, O(d^2) with `toeplitz`; the optimizer needs all rows, O(d T).
    """

    name: ClassVar[str] = "joint-glm"
    guarantee = "joint"
    options_type = JointOptions
    options: JointOptions

    def _build(self) -> None:
        setting, options = self.setting, self.options
        positive("growth", options.growth - 1.0)
        probability("failure_probability", options.failure_probability)
        positive("constant", options.constant)
        self._constants = constants_for(
            options.profile, setting, options.growth, options.failure_probability, options.constant
        )
        self._call_budgets = self._plan_calls()
        check_exact_sums(self.noise.grid, setting.horizon or 1, self._problem(0.0).residual_bound)
        stream, dim = self._open_stream(), setting.dim
        constants = np.zeros(11)
        chosen = self._constants
        constants[[THRESHOLD, COVERAGE_FACTOR, RIDGE, RIDGE_NOISE]] = (
            chosen.threshold,
            chosen.coverage_factor,
            chosen.ridge,
            chosen.ridge_noise,
        )
        constants[[WEIGHT_MAX, WEIGHT_DIVISOR, WIDTH_EXPLORE, WIDTH, GROWTH]] = (
            setting.max_derivative,
            chosen.weight_divisor,
            chosen.width_explore,
            chosen.width,
            chosen.growth,
        )
        constants[[LITERAL, PAPER_SETS]] = float(chosen.literal), float(chosen.newton_steps == 0)
        start = np.stack([np.eye(dim), setting.max_derivative * np.eye(dim)])
        self.state = JointState(
            stream=stream,
            rows=make_rows(dim),
            design=start.copy(),
            anchor=start * self._first_anchor(stream),
            coverage=np.eye(dim),
            spread=np.stack([np.eye(dim), np.eye(dim)]) * setting.theta_bound**2,
            theta=np.zeros((2, dim)),
            work=np.zeros((dim, dim)),
            calls=np.zeros(2, dtype=np.int64),
            explored=np.zeros(1, dtype=np.int64),
            link=np.array([setting.link.code], dtype=np.int64),
            constants=constants,
        )

    def _drop_raw(self) -> None:
        """A new cohort's noise comes on top of the old one's: the ridge gives up its reserve before it grows.

        Criterion I explores until V is a multiple of the ridge, so that a ridge for both would ask for what earlier
        cohorts explored once more.  The noise's spectral norm itself stays covered: a factor of 1.
        """
        old = float(released_variance(self.state.stream))
        super()._drop_raw()
        self.state.explored[:] = 0
        new = self._largest_variance(self.state.stream)
        constants = self.state.constants
        if constants[RIDGE_NOISE] > 1.0 and new > 0.0:
            constants[RIDGE_NOISE] = max(1.0, self._constants.ridge_noise * math.sqrt(new / (old + new)))

    def _first_anchor(self, stream: Stream) -> float:
        """The ridge that the first estimate must outgrow: the largest that noise will ever ask for."""
        noise = math.sqrt(2.0 * self.setting.dim * self._largest_variance(stream))
        return max(self._constants.ridge, self._constants.ridge_noise * noise)

    def _largest_variance(self, stream: Stream) -> float:
        """The largest variance of a released entry in the stream's present epoch."""
        plan = self._plan(int(stream.clock[1]))
        return (plan.noise_sd * worst_prefix_sd(plan.factorization) / plan.factorization.column_norm) ** 2

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 2

    def _plan(self, horizon: int) -> ContinualRelease:
        factorization = self.options.factorization or (
            self._constants.factorization if self.noise.grid is None else "tree"
        )
        return plan_release(
            "V and H",
            2 * packed_size(self.setting.dim),
            row_bound=math.sqrt(2.0),
            row_norm=1.0,
            mu=self.total_mu * math.sqrt(self._constants.stream_share),
            factorization=factorization,
            horizon=horizon,
            source=self.noise,
        )

    def _plan_calls(self) -> FloatArray:
        """mu of each optimizer call: a geometric split of what the stream leaves."""
        if self.total_mu == math.inf:
            return np.full(self._constants.max_calls, math.inf)
        shares = self._constants.call_decay ** np.arange(self._constants.max_calls)
        total = self.total_mu**2 * (1.0 - self._constants.stream_share)
        return np.asarray(np.sqrt(total * shares / np.sum(shares)), dtype=np.float64)

    def _on_event(self, flag: int) -> None:
        for side, bit in ((0, REFRESH_EXPLORE), (1, REFRESH_EXPLOIT)):
            if flag & bit:
                self._refresh(side)
        super()._on_event(flag & ~(REFRESH_EXPLORE | REFRESH_EXPLOIT))

    def _refresh(self, side: int) -> None:
        """One call of the private optimizer for theta_o (side 0) or theta_tau (side 1)."""
        state = self.state
        state.anchor[side] = state.design[side]
        if side == 0:
            state.explored[0] = 0
        call = int(state.calls[side])
        if call >= self._constants.max_calls:
            return
        optimizer, public = self._optimizer(side, self._call_mu(call))
        release, event = self._call_release(call, optimizer)
        if call >= int(state.calls[1 - side]) and self.ledger is not None:
            self.ledger.charge(event)
        state.calls[side] += 1  # after the charge: the other side's call of this number relies on it
        draws = self.event_noise.gaussian(release.noise_sd, (optimizer.steps, self.setting.dim))
        rows = Rows(
            state.rows.features,
            state.rows.rewards,
            int(state.rows.count[0]),
            state.rows.mask,
            EXPLORED if side == 0 else EXPLOITED,
        )

        def publish(exact: FloatArray, noise: FloatArray) -> FloatArray:
            return self.publisher.vector(f"optimizer call {call + 1}, {_SIDES[side]}", exact, noise, release.noise_sd)

        state.theta[side] = optimizer.run(rows, public, draws, release.grid, publish)

    def _call_mu(self, call: int) -> float:
        """mu of the gradients of one side's call, such that the pair of calls spends its share of the budget."""
        return float(self._call_budgets[call]) * self._problem(0.0).sensitivity / self._pair_sensitivity

    def _call_release(self, call: int, optimizer: PrivateOptimizer) -> tuple[Release, NoisySum]:
        """What call ``call`` draws, and the one entry of both sides' calls."""
        release = optimizer.release(self.event_noise, f"optimizer call {call + 1}, theta_o or theta_tau")
        widened = self._pair_sensitivity - self._problem(0.0).sensitivity
        # The other side's call has the same steps (Newton), or as many as its own tick asks for (descent).
        steps = self._constants.newton_steps or MAX_STEPS
        return release, _for_both_sides(release.event, widened, steps * self.setting.dim)

    def planned_calls(self) -> tuple[PrivacyEvent, ...]:
        steps = max(1, self._constants.newton_steps)
        return tuple(
            self._call_release(call, NoisyNewton(self._problem(1.0), self._call_mu(call), steps=steps))[1]
            for call in range(self._constants.max_calls)
        )

    def _optimizer(self, side: int, mu: float) -> tuple[PrivateOptimizer, PublicView]:
        """The optimizer of one call and all that is public before it."""
        if self._constants.newton_steps == 0:
            return self._paper_optimizer(side, mu)
        setting, state = self.setting, self.state
        noise_sd = self.noise.scale_for(self._problem(0.0).sensitivity, mu, size=setting.dim)
        curvature = self._curvature(side)
        center, prior = self._prior(side)
        values, basis = np.linalg.eigh(curvature)
        values = np.maximum(values, 1e-9)
        # A noisy gradient at theta tells M (theta - theta*) up to variance M + noise_sd^2: its precision is M^2 / that.
        information = values**2 / (values + noise_sd**2)
        state.spread[side] = (basis / (information + prior)) @ basis.T
        ridge = prior * (1.0 + noise_sd**2 / float(np.mean(values)))
        start = state.theta[side] if state.calls[side] > 0 else center
        view = PublicView(start=start.copy(), precision=curvature, center=center)
        return NoisyNewton(self._problem(ridge), mu, steps=self._constants.newton_steps), view

    def _problem(self, ridge: float) -> Problem:
        """The regression; the paper's profiles charge its 2 L, ours the diameter of the set of gradients."""
        setting = self.setting
        sharp = self._constants.newton_steps > 0
        return Problem(setting.link, setting.dim, setting.theta_bound, setting.reward_bound, ridge, sharp)

    @property
    def _pair_sensitivity(self) -> float:
        """l2 change of call k of theta_o and of theta_tau together, for a row that is replaced or changes sides."""
        problem = self._problem(0.0)
        return max(problem.sensitivity, math.sqrt(2.0) * problem.moving_sensitivity)

    def _curvature(self, side: int) -> FloatArray:
        """Released Hessian of one side's loss: H, or V weighted by a typical derivative."""
        state, dim = self.state, self.setting.dim
        half = packed_size(dim)
        released = state.stream.released[side * half : (side + 1) * half]
        return unpacked(released, dim) * self.setting.max_derivative

    def _prior(self, side: int) -> tuple[FloatArray, float]:
        """Center and precision before the call: 0 with spread S, then theta_o with the spread that it has."""
        state, dim = self.state, self.setting.dim
        if side == 0 or state.calls[0] == 0:
            return np.zeros(dim), dim / self.setting.theta_bound**2
        return state.theta[0].copy(), dim / float(np.trace(state.spread[0]))

    def _paper_optimizer(self, side: int, mu: float) -> tuple[PrivateOptimizer, PublicView]:
        """Noisy projected gradient descent over Theta_I, a ball, or Theta_II, an ellipsoid around theta_o."""
        setting, state, constants = self.setting, self.state, self._constants
        ticks = max(1, int(self.decisions))
        optimizer = NoisyGradientDescent.planned(
            self._problem(constants.ridge), mu, ticks, failure_probability=self.options.failure_probability
        )
        if side == 0:
            return optimizer, PublicView(start=np.zeros(setting.dim))
        invert_cholesky(np.linalg.cholesky(state.design[1]), state.spread[1])
        region = Ellipsoid(state.theta[0].copy(), state.design[0].copy(), constants.width_explore)
        return optimizer, PublicView(start=state.theta[0].copy(), ellipsoid=region)

    def _warnings(self) -> tuple[str, ...]:
        if not self._constants.literal:
            return ()
        return (
            "profile 'paper' refreshes theta_o when a user's own round explores: that time depends on raw contexts and "
            "is seen by others. The figures above do not cover it; never serve people with this profile.",
        )


def _for_both_sides(event: NoisySum, widened: float, other_draws: int) -> NoisySum:
    """The entry of call k of both optimizers.

    Its sensitivity exceeds that of one call by ``widened``; what the event adds for rounding stays.  Exact noise
    accounts for the draws of both calls, of which the other one has at most ``other_draws``.
    """
    sensitivity = event.sensitivity + widened
    if isinstance(event, DiscreteGaussianRelease):
        return replace(event, draws=event.draws + other_draws, sensitivity=sensitivity)
    return replace(event, sensitivity=sensitivity)
