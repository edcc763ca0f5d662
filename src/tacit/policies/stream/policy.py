"""`stream-glm`: the whole budget in one continual stream, the estimate as post-processing.

The default policy.  There is no constant to choose: noise, ridge and width follow from the budget and the public
setting.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from tacit._validate import nonnegative, positive, share
from tacit.errors import InvalidInput
from tacit.estimation.linearised import LinearisedRow, best_row, blended_weights, row_with_scale
from tacit.features.support import Support
from tacit.linalg.blocks import make_blocks
from tacit.policies.beliefs import BlockBelief, GaussianBelief
from tacit.policies.config import at_least, choice, configuration, option
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.private_policy import size_notices
from tacit.policies.setting import Setting
from tacit.policies.state import size_in_bytes
from tacit.policies.stream.estimate import StreamConstants
from tacit.policies.stream.steps import STEPS, StreamState
from tacit.privacy.continual import ContinualRelease
from tacit.privacy.geometric import no_public_rows
from tacit.typing import count


@configuration
class StreamConfig(ContinualConfig):
    """Configuration of `stream-glm`; what it adds is for ablations, and the defaults are meant for use."""

    shrinkage: str = choice(
        "What H is shrunk to as far as its noise explains the difference: `axes` (what play along the released thetas "
        "makes of it), `identity` (a multiple of that) or `none`.",
        ("axes", "identity", "none"),
        default="axes",
    )
    blend: float | None = option(
        "Share of the secant in the weights, in [0, 1]; by default 1/2, 3/4 where the budget is small, 1 with a base "
        "rate.",
        default=None,
        check=share,
    )
    scale: float | None = option(
        "s: size of the score next to the matrix; derived by default.", default=None, check=positive
    )
    width: float = option(
        "Posterior standard deviations of optimism, for the part of the variance that rewards make.",
        default=1.5,
        check=nonnegative,
    )
    noise_width: float = option(
        "Posterior standard deviations of optimism, for the part of the variance that privacy noise makes.",
        default=1.0,
        check=nonnegative,
    )
    prior: float = option("Multiplies the prior precision (d + 2) / S^2.", default=1.0, check=positive)
    head_start: float | None = option(
        "a: after n decisions a leaf has the weight sqrt(n^2 + a^2); by default a quarter of the decisions before "
        "which noise hides what the prior leaves open.",
        default=None,
        check=nonnegative,
    )
    blocks: int | None = option(
        "Number of blocks of equal size of which the features of an arm fill one, and are 0 in all others: arms with "
        "parameters of their own. Products of features from two blocks are then not released. A schema says so "
        "by itself.",
        default=None,
        check=at_least(1),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks is not None and self.features is not None:
            raise InvalidInput("blocks follow from the schema: leave them out where there are features")
        if self.blocks is not None and self.dim % self.blocks != 0:
            raise InvalidInput(f"dim must be a multiple of blocks={self.blocks}, not {self.dim}")


class StreamGLM(ContinualPolicy):
    """One stream of (w x x', s y x), re-solved as it grows.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row (arm set and reward) is replaced.  The only release is a continual stream; a row
    contributes v = (w x x', s y x) to one leaf, linearised at the theta that was public at the user's
    decision.  Replaced in place, moved to another leaf or missing, it shifts the stream by at most
    ``LinearisedRow.row_bound`` times the largest column norm of C.  The stream is mu-GDP with the whole budget
    (docs/theory.md#guarantee), all estimates are post-processing, and joint DP follows by the billboard argument
    (docs/theory.md#billboard).

    Memory: O(d^2) for any horizon, O(d^2 log T) with `tree`; raw data are not kept.
    """

    name: ClassVar[str] = "stream-glm"
    guarantee = "joint"
    config_type = StreamConfig
    config: StreamConfig

    _steps = STEPS
    _remembers_score = True

    def _make_state(self) -> StreamState:
        constants, support = self._constants(), self._support
        squares = np.concatenate([np.eye(size).ravel() for size in np.diff(support.starts).tolist()])
        start = squares.reshape(support.dim, support.dim) if support.dense else squares
        blocks, groups = make_blocks(support.starts, support.pairs)
        return StreamState(
            stream=self._open_stream(),
            played=no_public_rows(support.size),
            theta=np.zeros(support.dim),
            posterior=start / constants.prior,
            covariance=start * constants.width**2 / constants.prior,
            ticks=count(),
            solve_at=count(),
            blocks=blocks,
            groups=groups,
            constants=constants,
        )

    def _constants(self) -> StreamConstants:
        setting, config, row = self.setting, self.config, self._row
        return StreamConstants(
            link=setting.link,
            blend=row.blend,
            scale=row.scale,
            theta_bound=setting.theta_bound,
            dispersion=dispersion(setting, row),
            prior=config.prior * (setting.dim + 2) / setting.theta_bound**2,
            width=config.width,
            noise_width=config.noise_width,
            patience=math.inf if config.factorization in (None, "geometric") else 100.0,
            shrinks=config.shrinkage != "none",
            axes=config.shrinkage == "axes",
        )

    @cached_property
    def _support(self) -> Support:
        """Which features of an arm can be nonzero together; all of them unless something is known."""
        if self.config.features is not None:
            return self.config.features.support
        blocks, dim = self.config.blocks or 1, self.setting.dim
        return Support.of_blocks([dim // blocks] * blocks)

    @cached_property
    def _row(self) -> LinearisedRow:
        """What a user contributes, and its bounds."""
        setting, blend, scale = self.setting, self.config.blend, self.config.scale
        if blend is None:
            # Rare rewards cost most noise: the secant keeps responses within [-b, R - b].
            blend = usual_blend(self._total_mu) if self.config.base_rate is None else 1.0
        bounds = (setting.link, setting.theta_bound, setting.reward_bound, blend)
        if scale is not None:
            return row_with_scale(*bounds, scale)
        # Noise in a block's H meets that block's theta alone, whose share of |theta|^2 is that of its coordinates.
        return best_row(*bounds, share=float(np.max(np.diff(self._support.starts))) / self._support.dim)

    @property
    def _structure(self) -> Support | None:
        return None if self._support.dense else self._support

    @cached_property
    def belief(self) -> GaussianBelief | BlockBelief:
        """The newest estimate and its covariance."""
        state: StreamState = self._state
        if state.posterior.ndim == 1:
            return BlockBelief(state.theta, state.posterior, state.blocks)
        return GaussianBelief(state.theta, state.posterior)

    def _notices(self) -> tuple[str, ...]:
        largest = int(np.max(np.diff(self._support.starts)))
        released = largest * (largest + 1) // 2
        return super()._notices() + size_notices(released, largest, size_in_bytes(self.state))

    @property
    def _memo_size(self) -> int:
        return self._row_size + 1

    def _plan(self, horizon: int) -> ContinualRelease:
        row, dim = self._row, self.setting.dim
        plan = self._plan_stream(
            "H and score",
            self._support.size + dim,
            horizon,
            row_bound=row.row_bound,
            row_norm=row.row_norm,
            mu=self._total_mu,
            factorization="geometric",
        )
        # A score coordinate fluctuates with the rewards' variance, at most R^2 / 4, in about half of |x|^2 = 1.
        fluctuation = (row.scale * self.setting.reward_bound) ** 2 / (8.0 * dim)
        return plan.refined(fluctuation=fluctuation, head_start=self._head_start, **self._leaf_terms)

    @property
    def _head_start(self) -> float:
        """t_0, the head start of the leaves' weights: what is told before t_0 decisions is worth more if told later.

        The score's noise is about 2 D / (s mu) in each coordinate, H about t m / (d + 2) where arms are uniform in the
        ball, and the prior's standard deviation S / sqrt(d + 2): t_0 is when H times the last equals the first.  m is
        the mean slope over scores of that standard deviation, at two points: where rewards are rare it is far from
        mu'(0).
        """
        if self.config.head_start is not None:
            return self.config.head_start
        setting, row = self.setting, self._row
        noise = 2.0 * row.row_bound / (row.scale * self._total_mu)
        typical = setting.theta_bound / math.sqrt(setting.dim + 2)
        slope = 0.5 * float(setting.link.derivative(typical) + setting.link.derivative(-typical))
        return float(0.25 * noise * (setting.dim + 2) ** 1.5 / (setting.theta_bound * slope))


SMALL_MU: Final = 0.6
"""Budgets below it buy noise of more than 1.7 times what one row can change."""


def usual_blend(mu: float) -> float:
    """Share of the secant: it needs less noise, the tangent converges faster, so that the budget decides."""
    return 0.75 if mu < SMALL_MU else 0.5


def dispersion(setting: Setting, row: LinearisedRow) -> float:
    """phi: the largest variance of a reward per unit of weight, over scores in [-S, S]."""
    scores = np.linspace(-setting.theta_bound, setting.theta_bound, 201)
    _, weights = blended_weights(setting.link, row.blend, scores)
    return float(np.max(setting.link.variance_bound(scores, setting.reward_bound) / weights))
