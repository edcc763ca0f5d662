"""`ldp-linucb`: Zheng, Cai, Huang, Li and Wang, "Locally differentially private (contextual) bandits learning", NeurIPS
2020, arXiv 2006.00701.

LinUCB of the local model: each user's device receives the server's estimate, plays, and sends x x' and r x with
Gaussian noise. The server adds reports up, shifts the matrix by twice a bound on the norm of all noise in it, and
widens the confidence set by what noise makes of the estimate. Rewards are taken for linear with every link: a reward
that is not costs a bias, never privacy. With a base rate b, what is reported and fitted is r - b.

Formal guarantee
----------------
(epsilon, delta)-local differential privacy: what leaves a device is one noisy report (x x', s r x) with s = 1 / R.
Adjacency: the user's whole row (arm set and reward) is replaced, which moves the report by at most D = 3 / sqrt(2)
(`row_bound`); noise N(0, (D / mu)^2 I) is mu-GDP, exactly (docs/theory.md#private-peers). The ledger holds one report
per user: reports of different users are about disjoint rows, so they do not add up. A user whose reward never comes
sends nothing: the number of reports is not protected, as always in the local model. Ours: one exact Gaussian
calibration of both parts together, a matrix in isometric packing, the scale of width and shift, and a ridge.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._validate import nonnegative, positive, probability
from tacit.linalg.ball import into_ball
from tacit.linalg.inverse import ridge_inverse
from tacit.linalg.packing import packed_outer_sums, packed_size, unpacked
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._local import LocalPolicy, Report
from tacit.policies.baselines._private_linear import estimate_bound, response_bound, row_bound, subtracted_rate
from tacit.policies.beliefs import most_promising, quadratics
from tacit.policies.config import PrivateConfig, configuration, option
from tacit.policies.log import DIRECT, Publisher
from tacit.policies.steps import Steps
from tacit.threads import one_blas_thread
from tacit.typing import Count, FloatArray, IntArray, Scalar, Secret, count, scalar


@configuration
class LdpLinConfig(PrivateConfig):
    """Configuration of `ldp-linucb`.

    The authors' ``scale`` and ``shift`` are 1.  Their experiments have an epsilon of 8e5; at budgets of 1 to 8 these
    constants leave no estimate and play the longest arm.  Ours are calibrated on seeds from 1000
    (docs/guides/baselines.md).
    """

    scale: float = option("Multiplies the radius of the confidence set.", default=0.001, check=nonnegative)
    shift: float = option("Multiplies what is added to the matrix for its noise.", default=0.1, check=nonnegative)
    ridge: float = option("Added to the matrix with any noise.", default=1.0, check=positive)
    failure_probability: float = option(
        "Probability with which the bound on the noise may fail; not the privacy delta.", default=0.1, check=probability
    )


class LdpLinConstants(NamedTuple):
    """Public numbers that the steps of `ldp-linucb` read."""

    horizon: int | None
    theta_bound: float
    reward_bound: float
    longest_estimate: float
    base_rate: float
    reward_weight: float
    """s."""
    noise_sd: float
    grid: float
    """Spacing of exact noise; 0: none."""
    scale: float
    shift: float
    ridge: float
    failure_probability: float


class LdpLinState(NamedTuple):
    """The sums of all reports, what the server makes of them, and what the devices that decide next have drawn."""

    sums: FloatArray
    """Sum of x x', packed, and behind it of s r x; with all noise."""
    theta: FloatArray
    inverse: FloatArray
    radius: Scalar
    noise: Secret[FloatArray]
    """Noise of each of these devices, one after the other."""
    reports: Count
    constants: LdpLinConstants


def choose(state: LdpLinState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest upper confidence bound for each of N users.

    A memo has the features of the arm and the noise of the user's device.
    """
    users, _, dim = contexts.shape
    rows = contexts.reshape(-1, dim)
    squares = quadratics(rows, state.radius[()] ** 2 * state.inverse)
    arms = most_promising(rows.dot(state.theta), squares, users)
    remember_rows(contexts, arms, memos)
    memos[:, dim:] = state.noise.reshape(users, -1)
    return arms


def device_report(constants: LdpLinConstants, x: FloatArray, reward: float) -> FloatArray:
    """Compute (x x', s r x) on a device, in steps of the grid."""
    response = constants.reward_weight * (reward - constants.base_rate)
    return packed_outer_sums(x[np.newaxis], np.ones(1), constants.grid, np.array([response]))


def learn(state: LdpLinState, memos: FloatArray, rewards: FloatArray, publisher: Publisher = DIRECT) -> None:
    """Take in N rewards: each device sends its report, which is released and so passes the publisher; then fit anew."""
    constants, dim = state.constants, state.theta.size
    for memo, reward in zip(memos, rewards.tolist(), strict=True):
        report = device_report(constants, memo[:dim], reward)
        state.reports[()] += 1
        state.sums[:] += publisher.vector("report", report, memo[dim:], constants.noise_sd)
    _solve(state)


def _solve(state: LdpLinState) -> None:
    """Fit theta, and the radius around it, by the constants of the authors' code (`update_status`).

    With Upsilon = sd sqrt(t) (4 sqrt(d) + 2 ln(2 T / alpha)), a bound on the operator norm of all noise in the matrix,
    the shift is 2 Upsilon, and the radius 2 s_r sqrt(d ln T) + (S sqrt(3 Upsilon) + s_b sqrt(d t / Upsilon)) d ln T
    with s_b = sd / s.  Ours: s_r also counts the reward's own deviation, S and s are 1 in their code, and T is t
    without a horizon.
    """
    constants, dim = state.constants, state.theta.size
    rounds = float(max(1, int(state.reports[()])))
    last = max(rounds + 1.0, float(constants.horizon or 0))
    sd, moment_sd = constants.noise_sd, constants.noise_sd / constants.reward_weight
    factor = 4.0 * math.sqrt(dim) + 2.0 * math.log(2.0 * last / constants.failure_probability)
    noise_bound = sd * math.sqrt(rounds) * factor
    with one_blas_thread(dim):
        gram, ridge = unpacked(state.sums[:-dim], dim), constants.ridge + constants.shift * 2.0 * noise_bound
        state.inverse[:], _ = ridge_inverse(gram, ridge)
        theta = state.inverse @ (state.sums[-dim:] / constants.reward_weight)
    state.theta[:] = into_ball(theta, constants.longest_estimate)
    deviation = math.hypot(0.5 * constants.reward_bound, moment_sd)
    bias = constants.theta_bound * math.sqrt(3.0 * noise_bound)
    spread = math.sqrt(moment_sd / constants.reward_weight * dim * math.sqrt(rounds) / factor)
    logarithm = math.log(last)
    radius = 2.0 * deviation * math.sqrt(dim * logarithm) + (bias + spread) * dim * logarithm
    state.radius[()] = constants.scale * radius


def advance(state: LdpLinState, fresh: bool, users: int) -> int:
    """Ask for no event: the server learns from reports alone."""
    return 0


class LdpLinUcb(LocalPolicy):
    """LinUCB on locally private reports of x x' and r x."""

    name: ClassVar[str] = "ldp-linucb"
    config_type = LdpLinConfig
    config: LdpLinConfig
    state: LdpLinState
    _steps = Steps(choose, learn, advance)

    @property
    def _report(self) -> Report:
        dim = self.setting.dim
        # s times the largest response is 1: both parts of a report have norm 1 at most.
        return Report("noisy x x' and r x", packed_size(dim) + dim, norm=math.sqrt(2.0), distance=row_bound(1.0, 1.0))

    def _learn_rows(self, memos: FloatArray, rewards: FloatArray) -> None:
        learn(self._state, memos, rewards, self.publisher)

    def _make_state(self) -> LdpLinState:
        self._charge_reports()
        dim, size = self.setting.dim, self._report.size
        state = LdpLinState(
            sums=np.zeros(size),
            theta=np.zeros(dim),
            inverse=np.zeros((dim, dim)),
            radius=scalar(),
            noise=np.zeros(size),
            reports=count(),
            constants=self._constants(),
        )
        _solve(state)
        return state

    def _constants(self) -> LdpLinConstants:
        setting, config = self.setting, self.config
        return LdpLinConstants(
            horizon=setting.horizon,
            theta_bound=setting.theta_bound,
            reward_bound=setting.reward_bound,
            longest_estimate=estimate_bound(setting),
            base_rate=subtracted_rate(config),
            reward_weight=1.0 / response_bound(setting, config),
            noise_sd=self._planned_noise_sd,
            grid=self.randomness.ticks.grid or 0.0,
            scale=config.scale,
            shift=config.shift,
            ridge=config.ridge,
            failure_probability=config.failure_probability,
        )
