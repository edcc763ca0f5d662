"""Configuration fields that several baselines share."""

from __future__ import annotations

from typing import Any

from tacit._validate import nonnegative, positive, probability
from tacit.policies.config import Config, configuration, option


def scale_option(about: str, *, default: float = 1.0) -> Any:
    """The field ``scale``: ``about`` says which width it multiplies, and where the default comes from."""
    return option(about, default=default, check=nonnegative)


@configuration
class ConfidenceConfig(Config):
    """What every baseline with a confidence set is told."""

    failure_probability: float = option(
        "Probability with which the confidence set may miss the true parameter at some time, delta in the papers.",
        default=0.02,
        check=probability,
    )


@configuration
class DimRidgeConfig(ConfidenceConfig):
    """The same with a ridge that grows with the dimension unless it is stated."""

    ridge: float | None = option(
        "Ridge of the design matrix and of the estimate; d by default, as in the code behind the published figures.",
        default=None,
        check=positive,
    )

    @property
    def ridge_or_dim(self) -> float:
        """The ridge, d by default."""
        return float(self.dim) if self.ridge is None else self.ridge


@configuration
class RefittedConfig(ConfidenceConfig):
    """What a baseline with a confidence set is told whose estimate is fitted to all rows again and again."""

    growth: float = option(
        "Fraction by which rows grow between fits. At 0.01 the estimate is fitted anew after every row up to 100, then "
        "whenever the rows grew by 1%, which moves it by far less than its confidence width and keeps the cost per "
        "round flat.",
        default=0.01,
        check=positive,
    )
