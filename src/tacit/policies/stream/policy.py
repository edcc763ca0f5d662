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
from tacit.estimation.linearised import LinearisedRow, best_row, blended_weight, row_with_scale
from tacit.linalg.packing import packed_size
from tacit.policies.config import choice, configuration, option
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.setting import Setting
from tacit.policies.stream.steps import StreamConstants, StreamState, make_room
from tacit.privacy.continual import ContinualRelease
from tacit.privacy.geometric import no_public_rows
from tacit.typing import count, number


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
    noise_width: float = option("The same for the part that privacy noise makes.", default=1.0, check=nonnegative)
    prior: float = option("Multiplies the prior precision (d + 2) / S^2.", default=1.0, check=positive)


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

    Memory: O(d^2) whatever the horizon, O(d^2 log T) with `tree`; raw data are not kept.
    """

    name: ClassVar[str] = "stream-glm"
    guarantee = "joint"
    config_type = StreamConfig
    config: StreamConfig
    state: StreamState

    def _make_state(self) -> StreamState:
        dim = self.setting.dim
        constants = self._constants()
        return StreamState(
            stream=self._open_stream(),
            played=no_public_rows(packed_size(dim)),
            theta=np.zeros(dim),
            covariance=np.eye(dim) * (constants.width**2 / constants.prior),
            widest=number(constants.width / math.sqrt(constants.prior) * (1.0 + 1e-9)),
            ticks=count(),
            solve_at=count(),
            unsolved=count(),
            work=make_room(dim),
            constants=constants,
        )

    def _constants(self) -> StreamConstants:
        setting, config, row = self.setting, self.config, self._row
        return StreamConstants(
            link=setting.link.form,
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
    def _row(self) -> LinearisedRow:
        """What a user contributes, and its bounds."""
        setting, blend, scale = self.setting, self.config.blend, self.config.scale
        if blend is None:
            # Rare rewards cost most noise: the secant keeps responses within [-b, R - b].
            blend = usual_blend(self.total_mu) if self.config.base_rate is None else 1.0
        bounds = (setting.link, setting.theta_bound, setting.reward_bound, blend)
        return best_row(*bounds) if scale is None else row_with_scale(*bounds, scale)

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    def _plan(self, horizon: int) -> ContinualRelease:
        row, dim = self._row, self.setting.dim
        plan = self._plan_stream(
            "H and score",
            packed_size(dim) + dim,
            horizon,
            row_bound=row.row_bound,
            row_norm=row.row_norm,
            mu=self.total_mu,
            factorization="geometric",
        )
        # A score coordinate fluctuates with the rewards' variance, at most R^2 / 4, in about half of |x|^2 = 1.
        fluctuation = (row.scale * self.setting.reward_bound) ** 2 / (8.0 * dim)
        return plan.refined(fluctuation=fluctuation, **self._leaf_terms)


SMALL_MU: Final = 0.6
"""Budgets below it buy noise of more than 1.7 times what one row can change."""


def usual_blend(mu: float) -> float:
    """Share of the secant: it needs less noise, the tangent converges faster, so that the budget decides."""
    return 0.75 if mu < SMALL_MU else 0.5


def dispersion(setting: Setting, row: LinearisedRow) -> float:
    """phi: the largest variance of a reward per unit of weight, over scores in [-S, S]."""
    scores = np.linspace(-setting.theta_bound, setting.theta_bound, 201)
    weights = np.array([blended_weight(setting.link.form, row.blend, z) for z in scores])
    return float(np.max(setting.link.variance_bound(scores, setting.reward_bound) / weights))
