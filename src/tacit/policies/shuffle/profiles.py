"""Constants of Algorithm 1, batch lengths included: the paper's (`theory`) and ours (`tuned`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tacit.errors import InvalidInput
from tacit.policies.setting import PrivateSetting, Setting
from tacit.policies.shuffle.releases import score_ball
from tacit.policies.shuffle.steps import averaged_derivative

PROFILES = ("tuned", "theory")
_LARGEST_HORIZON = 1 << 256


@dataclass(frozen=True)
class Schedule:
    """Public batch lengths: ``sizes``, then each ``growth`` times the one before, none above ``largest``."""

    sizes: tuple[int, ...]
    growth: float = 1.0
    largest: int | None = None

    def size(self, batch: int, used: int, horizon: int | None) -> int:
        """Users of batch ``batch`` (from 0) after ``used`` decisions, cut to the horizon."""
        if batch < len(self.sizes):
            length = float(self.sizes[batch])
        else:
            length = self.sizes[-1] * self.growth ** (batch - len(self.sizes) + 1)
        if self.largest is not None:
            length = min(length, self.largest)
        room = math.inf if horizon is None else max(0, horizon - used)
        return int(min(math.ceil(length), room))


@dataclass(frozen=True)
class ShuffleProfile:
    """Constants that Algorithm 1 leaves open, as a profile chooses them."""

    schedule: Schedule
    gamma: float
    """Width around estimates of earlier batches."""
    gamma_newest: float
    """Width around the newest estimate."""
    matrix_share: float
    """Share of mu^2 that the matrix of a batch gets; scores or gradients get the rest."""
    averaged: bool
    """`tuned`: one release at the last estimate, averaged weights; `theory`: beta and gradient descent."""
    ridge: float = 0.0
    """lambda, which `theory` adds to every released matrix."""
    descent_ridge: float = 0.0
    """lambda_max, the regulariser of `theory`'s optimizer."""


class Widths(NamedTuple):
    """Width and ridges that `theory` computes from horizon and budget."""

    gamma: float
    ridge: float
    """lambda."""
    descent_ridge: float
    """lambda_max."""


def shuffle_profile(
    profile: str, setting: PrivateSetting, mu: float, scale: float = 1.0, batches: int | None = None
) -> ShuffleProfile:
    """Compute the constants of ``profile`` from public quantities alone.

    ``mu`` is what one row may spend (for `tuned`), ``scale`` the paper's universal C, ``batches`` its M (for `theory`).
    """
    if profile == "tuned":
        return _tuned(setting, mu)
    if setting.horizon is None:
        raise InvalidInput("horizon must be given for profile 'theory': its batch lengths depend on it")
    return _theory(setting, setting.horizon, scale, batches)


def _tuned(setting: Setting, mu: float) -> ShuffleProfile:
    """Chosen on simulated instances; what each is for is in docs/theory.md, "What `tuned` chooses in Algorithm 1"."""
    first, largest = _first_batch(setting, mu), None
    if setting.horizon is not None:
        first = min(first, math.ceil(0.2 * setting.horizon))
        largest = max(first, math.ceil(0.1 * setting.horizon))
    schedule = Schedule((first,), growth=1.5, largest=largest)
    return ShuffleProfile(schedule, gamma=3.0, gamma_newest=0.35, matrix_share=0.3, averaged=True)


def _first_batch(setting: Setting, mu: float) -> int:
    """Ten users for each dimension, and as many as bring a typical score above the noise that hides it.

    A user adds about w S / d^{3/2} to each coordinate of the sum of scores; its noise is about the radius of their
    ball over mu.
    """
    dim, bound = setting.dim, setting.theta_bound
    weight = float(averaged_derivative(setting.link, 0.0, bound / math.sqrt(dim)))
    noise = score_ball(setting.link, 0.0, setting.reward_bound).radius / mu
    return math.ceil(10.0 * dim + 4.0 * noise * math.sqrt(dim) ** 3 / (weight * bound))


def batch_count(horizon: float) -> int:
    """M: log log T, at least 2 (lemma batch_number_bound)."""
    return max(2, math.ceil(math.log2(max(2.0, math.log2(max(2.0, horizon))))))


def _theory(setting: PrivateSetting, horizon: int, scale: float, batches: int | None) -> ShuffleProfile:
    """The paper's section "Parameter settings" and equations batch_B1_B2, batch_Bk."""
    first = _warm_up(setting, horizon, scale, batches)
    if first > horizon:
        needed = smallest_horizon(setting, scale, batches)
        raise InvalidInput(
            f"profile 'theory' needs a horizon of at least {needed:.4g} with these constants: its warm-up batch alone "
            f"has B_1 = {first:.4g} users, and horizon = {horizon}. Use profile 'tuned', or a smaller constant"
        )
    widths = _widths(setting, horizon, scale, batches)
    alpha = _alpha(horizon, batches)
    sizes = [math.ceil(first), math.ceil(alpha)]
    for _ in range(2, batches or batch_count(horizon)):
        sizes.append(math.ceil(alpha * math.sqrt(sizes[-1])))
    sizes.append(horizon)  # the rest: the last batch is cut to the horizon (correction 8)
    return ShuffleProfile(
        schedule=Schedule(tuple(sizes)),
        gamma=widths.gamma,
        gamma_newest=widths.gamma,
        matrix_share=0.5,
        averaged=False,
        ridge=widths.ridge,
        descent_ridge=widths.descent_ridge,
    )


def smallest_horizon(setting: PrivateSetting, scale: float, batches: int | None) -> float:
    """The smallest T with B_1 <= T; infinite when there is none below 2^256."""
    high = 2
    while _warm_up(setting, high, scale, batches) > high:
        high *= 2
        if high > _LARGEST_HORIZON:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _warm_up(setting, middle, scale, batches) > middle:
            low = middle
        else:
            high = middle
    return float(high)


def _alpha(horizon: float, batches: int | None) -> float:
    """alpha = T^{1 / (2 (1 - 2^{1-M}))} (correction 8)."""
    count = batches or batch_count(horizon)
    return float(horizon ** (1.0 / (2.0 * (1.0 - 2.0 ** (1 - count)))))


def _warm_up(setting: PrivateSetting, horizon: int, scale: float, batches: int | None) -> float:
    """B_1 (equation batch_B1_B2)."""
    gamma = _widths(setting, horizon, scale, batches).gamma
    bound = math.sqrt(setting.kappa) * math.exp(3.0 * setting.theta_bound) * setting.dim**2 * gamma**2
    return float((bound / setting.theta_bound * _alpha(horizon, batches)) ** (2.0 / 3.0))


def _widths(setting: PrivateSetting, horizon: int, scale: float, batches: int | None) -> Widths:
    """Gamma, lambda and lambda_max (equations lambda_defn_mone, gamma_defn_mone, sigma_nu_defn, lambda_l_u_defn)."""
    d, big_r, s = setting.dim, setting.reward_bound, setting.theta_bound
    delta, epsilon = setting.budget.delta, setting.budget.epsilon
    count = batches or batch_count(horizon)
    log_t = math.log(horizon)
    spread = big_r * math.log(d**2 / delta) * setting.max_derivative / epsilon
    nu = scale * big_r * s**2 * math.sqrt(d * math.log(horizon * d / delta) ** 3) / epsilon
    ridge = 20.0 * d * big_r * log_t
    ridge += scale * spread * (2.0 * math.sqrt(math.log(2.0 * d * count * horizon / delta)) + 4.0 * math.sqrt(d))
    noise = 8.0 * spread * (4.0 * math.sqrt(d) + 2.0 * math.sqrt(math.log(2.0 * count * horizon / delta)))
    gamma = scale * big_r * s * math.sqrt(ridge) + math.sqrt(4.0 * big_r * s * nu)
    return Widths(gamma, ridge, ridge + noise)
