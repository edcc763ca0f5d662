"""`adaprivate-ts`: Riyazat and Ukwatta, "AdaPrivate-TS: private Thompson sampling for contextual bandits with privacy
amplification", Canadian AI 2026 (PMLR 318:723-734), arXiv 2606.21757.

Thompson sampling for linear rewards on sums that are released batch by batch, each batch with Gaussian noise of its
own: a user is in one batch, so that batches do not add up (event level). Noise N(0, sigma^2 I) on b is taken for
uncertainty, and theta is drawn with the covariance v^2 A^-1 + sigma^2 A^-2. Made from the abstract: neither its code
nor the rest of the paper could be looked up (docs/guides/baselines.md lists what is ours).

Formal guarantee
----------------
(epsilon, delta)-joint differential privacy by the billboard argument. Adjacency: one user's whole row (arm set and
reward) is replaced. The abstract has noise on b alone. A matrix A of raw contexts is then released to everybody who is
served after, which protects rewards and not rows. Here a batch releases (x x', s r x) with s = 1 / R, and noise on both
parts. A row that is replaced in place moves one batch by at most D = 3 / sqrt(2) (`row_bound`), and one that moves to
another batch, or vanishes, moves two by at most sqrt(2) each, 2 together. Noise N(0, (D / mu)^2 I) makes all batches
together mu-GDP; each is charged to a cohort of its own (docs/theory.md#private-peers). Batches close by the number of
decisions, with rewards or without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._validate import nonnegative, positive
from tacit.linalg.ball import into_ball
from tacit.linalg.inverse import ridge_inverse
from tacit.linalg.packing import packed_outer_sums, packed_size, unpacked
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._private_linear import estimate_bound, response_bound, row_bound, subtracted_rate
from tacit.policies.clock import Span
from tacit.policies.config import PrivateConfig, at_least, configuration, option
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.steps import Steps
from tacit.policies.sum_policy import standard_normals
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import NoiseSource
from tacit.privacy.report import Model
from tacit.threads import one_blas_thread
from tacit.typing import Count, FloatArray, IntArray, Secret, count

_RELEASE = 1
"""The event that a batch is full."""
_GRID = 2.0**-30
"""Spacing of contributions where noise has no grid of its own."""
_LONGEST_BATCH = 1 << 29
"""Most decisions of a batch: exact sums of so many rows are whole steps that floats hold."""


@dataclass(frozen=True)
class NoisyBatch:
    """One batch's sums of x x' and s r x: noise and ledger entry from the same parameters.

    Formal guarantee
    ----------------
    Adjacency: one user's row is replaced.  In place it moves the sums of one batch by at most `row_bound`; between
    batches it moves two of them by its norm, sqrt(2) at most.  Noise of standard deviation ``noise_sd`` makes all
    batches together mu-GDP (docs/theory.md#private-peers).
    """

    dim: int
    mu: float
    source: NoiseSource

    @property
    def size(self) -> int:
        """Numbers that a batch releases."""
        return packed_size(self.dim) + self.dim

    @property
    def grid(self) -> float:
        """Spacing that contributions are rounded to, so that sums do not depend on their order."""
        return self.source.grid or _GRID

    @property
    def _slack(self) -> float:
        """What that rounding adds to the distance of two rows, where the source does not count it itself."""
        return 0.0 if self.source.grid else math.sqrt(self.size) * self.grid

    @property
    def distance(self) -> float:
        """Bound on how far a row that is replaced in place moves the sums."""
        return row_bound(1.0, 1.0) + self._slack

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each number."""
        return self.source.scale_for(self.distance, self.mu, size=self.size)

    def charge(self, ledger: Ledger, cohort: str) -> None:
        """Charge the ledger for the release of one batch."""
        norm, sd = math.sqrt(2.0) + 0.5 * self._slack, self.noise_sd
        name = "batch sums of x x' and r x"
        ledger.charge(self.source.event(name, self.distance, sd, size=self.size, moving_sensitivity=norm), cohort)


@configuration
class AdaPrivateConfig(PrivateConfig):
    """Configuration of `adaprivate-ts`; scale, shift and first batch are calibrated on seeds from 1000."""

    first_batch: int | None = option(
        "Decisions of the shortest batches; one part in 25 of the horizon by default, 200 without one.",
        default=None,
        check=at_least(1),
    )
    growth: float = option(
        "Decisions of a batch for each decision before it; 1 doubles their number, 0 makes all batches equally long.",
        default=1.0,
        check=nonnegative,
    )
    scale: float = option("v, in units of the reward bound: spread of the draws of theta.", default=0.6, check=positive)
    shift: float = option("Multiplies the bound on the noise that is added to the matrix.", default=1.0, check=positive)
    ridge: float = option("Added to the matrix with any noise.", default=1.0, check=positive)


class AdaPrivateConstants(NamedTuple):
    """Public numbers that the steps of `adaprivate-ts` read."""

    first_batch: int
    growth: float
    base_rate: float
    reward_weight: float
    """s."""
    grid: float
    """Spacing that contributions are rounded to."""


class AdaPrivateState(NamedTuple):
    """The open batch, what earlier ones released, and what theta is drawn by."""

    batch: Secret[FloatArray]
    """Sums of x x', packed, and behind it of s r x, of the open batch."""
    released: FloatArray
    """Sums of all batches so far, each with noise of its own."""
    theta: FloatArray
    factor: FloatArray
    """Lower Cholesky factor of the covariance of the draws."""
    decisions: Count
    boundary: Count
    """The open batch is released when there were so many decisions."""
    batches: Count
    """Batches that were closed."""
    constants: AdaPrivateConstants


def next_boundary(decisions: int, constants: AdaPrivateConstants) -> int:
    """The number of decisions at which a batch ends that begins after so many of them."""
    wanted = max(float(constants.first_batch), constants.growth * decisions)
    return decisions + math.ceil(min(wanted, _LONGEST_BATCH))


def choose(state: AdaPrivateState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Draw theta for each of N users, and choose the arm of the largest score; a memo has its features."""
    thetas = state.theta + standard_normals(coins) @ state.factor.T
    arms: IntArray = (contexts @ thetas[:, :, np.newaxis])[:, :, 0].argmax(axis=1)
    remember_rows(contexts, arms, memos)
    return arms


def learn(state: AdaPrivateState, memos: FloatArray, rewards: FloatArray) -> None:
    """Add (x x', s (r - base rate) x) of N rewarded rows to the open batch."""
    constants = state.constants
    responses = constants.reward_weight * (rewards - constants.base_rate)
    state.batch[:] += packed_outer_sums(memos, np.ones(rewards.size), constants.grid, responses)


def advance(state: AdaPrivateState, fresh: bool, users: int) -> int:
    """Count decisions, and ask for the release of the open batch when it has had its decisions."""
    decisions = int(state.decisions[()])
    due = decisions >= int(state.boundary[()])
    if due:
        state.boundary[()] = next_boundary(decisions, state.constants)
        state.batches[()] += 1  # before the release: whatever interrupts it, no cohort is used twice
    state.decisions[()] = decisions + users
    return _RELEASE if due else 0


class AdaPrivateTS(PrivatePolicy):
    """Thompson sampling on batches that are released once, with noise that counts as uncertainty."""

    name: ClassVar[str] = "adaprivate-ts"
    guarantee: ClassVar[Model] = "joint"
    config_type = AdaPrivateConfig
    config: AdaPrivateConfig
    state: AdaPrivateState
    _chooses_by_releases = True
    _steps = Steps(choose, learn, advance)

    @property
    def _coin_count(self) -> int:  # type: ignore[override]
        return self.setting.dim

    @property
    def _plan(self) -> NoisyBatch:
        return NoisyBatch(self.setting.dim, self._total_mu, self.randomness.events)

    @property
    def _noise_scale(self) -> float:
        return self._plan.noise_sd

    def _next_span(self) -> Span:
        """Decisions up to the end of the open batch, or of the next one where that is to be released now.

        With ``reward_age`` rounds are played one by one: batches count decisions, whether they have come of age or not.
        """
        state = self._state
        decisions, boundary = int(state.decisions[()]), int(state.boundary[()])
        end = boundary if boundary > decisions else next_boundary(decisions, state.constants)
        return Span(end - decisions, 0, 0.0, rare=not self.config.reward_age)

    def _on_event(self, flag: int) -> None:
        """Release the batch that has had its decisions, and take it in."""
        plan, state = self._plan, self.state  # with all rewards that waited in a queue
        plan.charge(self.ledger, self._cohort(f"batch {int(state.batches[()])}"))
        exact = state.batch.copy()
        state.batch[:] = 0.0  # before the release: whatever interrupts it, a row is released at most once
        noise = plan.source.gaussian(plan.noise_sd, plan.size)
        state.released[:] += self.publisher.vector("batch", exact, noise, plan.noise_sd)
        self._solve(state)

    def _drop_raw(self) -> None:
        self.state.batch[:] = 0.0

    def _make_state(self) -> AdaPrivateState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        shortest = 200 if setting.horizon is None else math.ceil(setting.horizon / 25)
        constants = AdaPrivateConstants(
            first_batch=shortest if config.first_batch is None else config.first_batch,
            growth=config.growth,
            base_rate=subtracted_rate(config),
            reward_weight=1.0 / response_bound(setting, config),
            grid=self._plan.grid,
        )
        size = packed_size(dim) + dim
        state = AdaPrivateState(
            batch=np.zeros(size),
            released=np.zeros(size),
            theta=np.zeros(dim),
            factor=np.zeros((dim, dim)),
            decisions=count(),
            boundary=count(next_boundary(0, constants)),
            batches=count(),
            constants=constants,
        )
        self._solve(state)
        return state

    def _solve(self, state: AdaPrivateState) -> None:
        """Make the estimate and the covariance of the draws from what was released: no row is looked at.

        The covariance is v^2 A^-1 + A^-1 M A^-1 with M the covariance of the noise of b - A theta.  That is sigma^2 I
        for b, as in the abstract, and (|theta|^2 I + theta theta') / 2 times the variance of A's own noise in isometric
        packing, which the abstract has not.
        """
        setting, dim, weight = self.setting, self.setting.dim, state.constants.reward_weight
        sd = math.sqrt(int(state.batches[()])) * self._plan.noise_sd
        gram, moment = unpacked(state.released[:-dim], dim), state.released[-dim:] / weight
        with one_blas_thread(dim):
            # sqrt(2 d): the operator norm of the noise, a Gaussian orthogonal ensemble.
            ridge = self.config.ridge + self.config.shift * sd * math.sqrt(2.0 * dim)
            inverse, _ = ridge_inverse(gram, ridge)
            theta = into_ball(inverse @ moment, estimate_bound(setting))
            own = 0.5 * (theta @ theta * np.eye(dim) + np.outer(theta, theta))
            noise = sd * sd * (np.eye(dim) / (weight * weight) + own)
            spread = self.config.scale * setting.reward_bound
            state.factor[:] = np.linalg.cholesky(spread * spread * inverse + inverse @ noise @ inverse)
        state.theta[:] = theta
