"""The public constants of a problem, derived from a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.glm.links import Link, get_link
from tacit.glm.shifted import with_base_rate
from tacit.policies.config import Config, PrivateConfig
from tacit.privacy.budget import Budget


@dataclass(frozen=True)
class Setting:
    """What everybody may know: dimension, horizon, link, bounds.

    ``link`` is shifted where the configuration states a base rate.  ``kappa`` and ``kappa_star`` are 1 / min and 1 /
    max of its derivative over [-theta_bound, theta_bound], unless the configuration states other public values.
    """

    dim: int
    horizon: int | None
    link: Link
    theta_bound: float
    reward_bound: float
    kappa: float
    kappa_star: float

    @property
    def max_derivative(self) -> float:
        """Largest weight mu' that a row can have."""
        return 1.0 / self.kappa_star


@dataclass(frozen=True)
class PrivateSetting(Setting):
    """Constants of a private policy: those of `Setting`, and its budget."""

    budget: Budget


def make_setting(config: Config) -> Setting:
    """The constants that follow from a configuration."""
    plain, bound = get_link(config.link), config.theta_bound
    reward_bound = plain.default_reward_bound if config.reward_bound is None else config.reward_bound
    link = with_base_rate(plain, config.base_rate, reward_bound)
    return Setting(
        dim=config.dim,
        horizon=config.horizon,
        link=link,
        theta_bound=bound,
        reward_bound=reward_bound,
        kappa=link.kappa(bound) if config.kappa is None else config.kappa,
        kappa_star=link.kappa_star(bound) if config.kappa_star is None else config.kappa_star,
    )


def make_private_setting(config: PrivateConfig) -> PrivateSetting:
    """The constants that follow from a private configuration."""
    return PrivateSetting(**vars(make_setting(config)), budget=config.budget)
