"""Constants of Algorithm 2: the paper's (`theory`, `paper`) and ours (`tuned`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.policies.setting import PrivateSetting, Setting

PROFILES = ("tuned", "theory", "paper")
UNKNOWN_HORIZON = 1 << 20
"""Stands for T in logarithms when the horizon is unknown."""


@dataclass(frozen=True)
class JointProfile:
    """Constants that Algorithm 2 leaves open.

    ``threshold`` is criterion I's on ||x||^2 in V^-1; 0 stands for ``1 / (coverage_factor * ridge)``: explore until V
    has grown to a multiple of its ridge.  The ridge is at least ``ridge`` and ``ridge_noise`` times the noise's
    spectral norm.
    """

    factorization: str
    stream_share: float
    """Share of mu^2 that the stream of V and H gets; the optimizer gets the rest."""
    threshold: float
    coverage_factor: float
    ridge: float
    ridge_noise: float
    weight_divisor: float
    """Weights in H are mu' divided by it."""
    width_explore: float
    """Width of the confidence set around theta_o."""
    width: float
    """Width of the confidence set around theta_tau."""
    growth: float
    """Growth of a released matrix in PSD order from one refresh of its estimate to the next."""
    max_calls: int
    call_decay: float
    """Each optimizer call gets this share of the squared budget of the one before."""
    paper_optimizer: bool = False
    """Noisy gradient descent, its sensitivity 2 L and confidence sets as in the paper; else a noisy Newton step, the
    diameter of the set of gradients, and confidence sets from what the noise leaves known.
    """
    literal: bool = False
    """Whether theta_o is refreshed when a user's own round explored, as the paper has it: that leaks."""


def joint_profile(
    profile: str, setting: PrivateSetting, growth: float, failure_probability: float, scale: float
) -> JointProfile:
    """Compute the constants of ``profile`` from public quantities alone; ``scale`` is the paper's universal C."""
    if profile == "tuned":
        return _tuned(setting, growth)
    return _paper(setting, growth, failure_probability, scale, literal=profile == "paper")


def call_bound(setting: Setting, ridge: float) -> int:
    """Bound on criterion-II switches: 1 + d log_{11/8}(1 + t w_max / (ridge d)) (docs/theory.md, correction 10)."""
    horizon = setting.horizon or UNKNOWN_HORIZON
    growth = 1.0 + horizon * setting.max_derivative / (ridge * setting.dim)
    return 1 + math.ceil(setting.dim * math.log(growth) / math.log(11.0 / 8.0))


def _tuned(setting: Setting, growth: float) -> JointProfile:
    return JointProfile(
        factorization="geometric",
        stream_share=0.6,
        threshold=0.0,
        coverage_factor=2.2,
        ridge=1.0,
        ridge_noise=1.6,
        weight_divisor=1.0,
        width_explore=3.0,
        width=0.5,
        growth=growth,
        max_calls=min(24, call_bound(setting, 1.0)),
        call_decay=0.8,
    )


def _paper(
    setting: PrivateSetting, growth: float, failure_probability: float, scale: float, *, literal: bool
) -> JointProfile:
    """Equations lambda, beta and gamma of the paper's parameter settings; Lambda_T = log(T / zeta)."""
    d, big_r, s = setting.dim, setting.reward_bound, setting.theta_bound
    horizon = setting.horizon or UNKNOWN_HORIZON
    log_t, log_delta = math.log(horizon / failure_probability), math.log(1.0 / setting.budget.delta)
    epsilon, kappa, kappa_star = setting.budget.epsilon, setting.kappa, setting.kappa_star
    ridge = 1.25 * d * log_t + 100.0 * math.sqrt(d) * log_delta * math.log(horizon) * (
        math.sqrt(log_t) + math.sqrt(d)
    ) / (epsilon * kappa_star)
    private = d**0.25 * math.sqrt(log_t * log_delta) * (d + log_t) ** 0.25
    beta = scale * (big_r * math.sqrt(d * log_t) + big_r * s * private / math.sqrt(epsilon * min(kappa_star, 1.0)))
    gamma = scale * (
        big_r**2 * s * math.sqrt(d * log_t)
        + big_r**2 * s * private / math.sqrt(epsilon * kappa_star)
        + big_r**4 * s**4 * d * math.sqrt(kappa) * log_t * math.sqrt(log_delta) / epsilon
    )
    explore_calls = 8.0 * d * big_r**2 * kappa * gamma**2 * math.log(horizon)
    calls = explore_calls if literal else call_bound(setting, ridge)
    return JointProfile(
        factorization="tree",
        stream_share=0.5,
        threshold=1.0 / (gamma**2 * kappa * big_r**2),
        coverage_factor=1.0,
        ridge=ridge,
        ridge_noise=0.0,
        weight_divisor=math.e,
        width_explore=gamma * math.sqrt(kappa),
        width=beta,
        growth=growth,
        max_calls=int(min(horizon, math.ceil(calls))),
        call_decay=1.0,
        paper_optimizer=True,
        literal=literal,
    )
