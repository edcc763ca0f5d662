"""`stream-glm`: the whole budget in one continual stream, the estimate as post-processing.

The default policy.  There is no constant to choose: noise, ridge and width follow from the budget and the public
setting.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit._validate import nonnegative, positive, share
from tacit.estimation.linearised import LinearisedRow, best_row, blended_weight, row_with_scale
from tacit.linalg.packing import packed_size
from tacit.policies.config import configuration, option, truth
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.setting import Setting
from tacit.policies.stream.filter import make_filter, restart_noise
from tacit.policies.stream.steps import StreamConstants, StreamState, make_room
from tacit.privacy.continual import ContinualRelease, plan_release
from tacit.privacy.streaming import buffer_count
from tacit.typing import count


@configuration
class StreamConfig(ContinualConfig):
    """Configuration of `stream-glm`; what it adds is for ablations, and the defaults are meant for use."""

    filtered: bool = option(
        "Estimate sums by the Kalman filter rather than by plain prefixes (`toeplitz` only).", default=True, check=truth
    )
    blend: float | None = option(
        "Share of the secant in the weights, in [0, 1]; 1/3 by default, 0 without noise.", default=None, check=share
    )
    scale: float | None = option(
        "s: size of the score next to the matrix; derived by default.", default=None, check=positive
    )
    width: float = option("Posterior standard deviations of optimism.", default=1.25, check=nonnegative)
    prior: float = option("Multiplies the prior precision d / S^2.", default=1.0, check=positive)


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
        setting, row, dim = self.setting, self._row, self.setting.dim
        stream, constants = self._open_stream(), self._constants()
        buffers = buffer_count(stream.mechanism)
        # A score coordinate fluctuates with the rewards' variance, at most R^2 / 4, in about half of |x|^2 = 1.
        fluctuation = (row.scale * setting.reward_bound) ** 2 / (8.0 * dim)
        return StreamState(
            stream=stream,
            filter=make_filter(packed_size(dim) + dim, buffers, row.row_norm, fluctuation),
            theta=np.zeros(dim),
            covariance=np.eye(dim) / constants.prior,
            ticks=count(),
            solve_at=count(),
            unsolved=count(),
            work=make_room(dim),
            constants=constants,
        )

    def _constants(self) -> StreamConstants:
        setting, config, row = self.setting, self.config, self._row
        return StreamConstants(
            link=setting.link.code,
            blend=row.blend,
            scale=row.scale,
            theta_bound=setting.theta_bound,
            dispersion=dispersion(setting, row),
            prior=config.prior * setting.dim / setting.theta_bound**2,
            width=config.width,
            patience=100.0,
            filtered=config.filtered and self._factorization == "toeplitz",
        )

    @cached_property
    def _row(self) -> LinearisedRow:
        """What a user contributes, and its bounds."""
        setting, blend, scale = self.setting, self.config.blend, self.config.scale
        if blend is None:
            blend = 0.0 if self.total_mu == math.inf else 1.0 / 3.0
        bounds = (setting.link, setting.theta_bound, setting.reward_bound, blend)
        return best_row(*bounds) if scale is None else row_with_scale(*bounds, scale)

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    @property
    def _factorization(self) -> str:
        return self.config.factorization or self.default_factorization

    def _plan(self, horizon: int) -> ContinualRelease:
        return plan_release(
            "H and score",
            packed_size(self.setting.dim) + self.setting.dim,
            row_bound=self._row.row_bound,
            row_norm=self._row.row_norm,
            mu=self.total_mu,
            factorization=self._factorization,
            horizon=horizon,
            source=self.randomness.ticks,
        )

    def _start_epoch(self, leaves: int, epoch: int) -> None:
        super()._start_epoch(leaves, epoch)
        restart_noise(self.state.filter)


def dispersion(setting: Setting, row: LinearisedRow) -> float:
    """phi: the largest variance of a reward per unit of weight, over scores in [-S, S]."""
    scores = np.linspace(-setting.theta_bound, setting.theta_bound, 201)
    weights = np.array([blended_weight(setting.link.code, row.blend, z) for z in scores])
    return float(np.max(setting.link.variance_bound(scores, setting.reward_bound) / weights))
