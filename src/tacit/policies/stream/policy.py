"""`stream-glm`: the whole budget in one continual stream, the estimate as post-processing.

The default policy.  There is no constant to choose: noise, ridge and width follow from the budget and the public
setting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit._validate import nonnegative, positive
from tacit.errors import InvalidInput
from tacit.estimation.linearised import LinearisedRow, best_row, blended_weight, row_with_scale
from tacit.linalg.packing import packed_size
from tacit.policies.setting import Setting
from tacit.policies.stream.filter import make_filter, restart_noise
from tacit.policies.stream.steps import (
    BLEND,
    DISPERSION,
    FILTERED,
    PATIENCE,
    PRIOR,
    SCALE,
    THETA_BOUND,
    WIDTH,
    StreamState,
)
from tacit.policies.streamed import StreamedPolicy
from tacit.privacy.continual import ContinualRelease, plan_release


@dataclass(frozen=True)
class StreamOptions:
    """Options of `stream-glm`, for ablations; the defaults are meant for use."""

    factorization: str | None = None
    """``toeplitz`` (default) or ``tree`` (default with exact noise)."""
    filtered: bool = True
    """Estimate sums by the Kalman filter rather than by plain prefixes (`toeplitz` only)."""
    blend: float | None = None
    """Share of the secant in the weights; 1/3 by default, 0 without noise."""
    scale: float | None = None
    """s: size of the score next to the matrix; derived by default."""
    width: float = 1.25
    """Posterior standard deviations of optimism."""
    prior: float = 1.0
    """Multiplies the prior precision d / S^2."""


class StreamGLM(StreamedPolicy):
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
    options_type = StreamOptions
    options: StreamOptions

    def _build(self) -> None:
        setting = self.setting
        self._row = self._choose_row()
        stream, dim = self._open_stream(), setting.dim
        size = packed_size(dim) + dim
        filtered = self.options.filtered and self._factorization == "toeplitz"
        constants = np.zeros(8)
        constants[[BLEND, SCALE, THETA_BOUND]] = self._row.blend, self._row.scale, setting.theta_bound
        constants[DISPERSION] = dispersion(setting, self._row)
        constants[PRIOR] = positive("prior", self.options.prior) * dim / setting.theta_bound**2
        constants[[WIDTH, PATIENCE, FILTERED]] = nonnegative("width", self.options.width), 100.0, float(filtered)
        # A score coordinate fluctuates with the rewards' variance, at most R^2 / 4, in about half of |x|^2 = 1.
        fluctuation = (self._row.scale * setting.reward_bound) ** 2 / (8.0 * dim)
        self.state = StreamState(
            stream=stream,
            rows=make_filter(size, stream.decay.size, self._row.row_norm, fluctuation),
            theta=np.zeros(dim),
            covariance=np.eye(dim) / constants[PRIOR],
            matrix=np.zeros((4, dim, dim)),
            score=np.zeros(dim),
            clock=np.zeros(2, dtype=np.int64),
            link=np.array([setting.link.code], dtype=np.int64),
            constants=constants,
        )

    def _choose_row(self) -> LinearisedRow:
        setting, blend, scale = self.setting, self.options.blend, self.options.scale
        if blend is None:
            blend = 0.0 if self.total_mu == math.inf else 1.0 / 3.0
        if not 0.0 <= blend <= 1.0:
            raise InvalidInput(f"blend must lie in [0, 1], not {blend!r}")
        bounds = (setting.link, setting.theta_bound, setting.reward_bound, blend)
        return best_row(*bounds) if scale is None else row_with_scale(*bounds, positive("scale", scale))

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    @property
    def _factorization(self) -> str:
        return self.options.factorization or self.default_factorization

    def _plan(self, horizon: int) -> ContinualRelease:
        return plan_release(
            "H and score",
            packed_size(self.setting.dim) + self.setting.dim,
            row_bound=self._row.row_bound,
            row_norm=self._row.row_norm,
            mu=self.total_mu,
            factorization=self._factorization,
            horizon=horizon,
            source=self.noise,
        )

    def _start_epoch(self, leaves: int, epoch: int) -> None:
        super()._start_epoch(leaves, epoch)
        restart_noise(self.state.rows)


def dispersion(setting: Setting, row: LinearisedRow) -> float:
    """phi: the largest variance of a reward per unit of weight, over scores in [-S, S]."""
    scores = np.linspace(-setting.theta_bound, setting.theta_bound, 201)
    weights = np.array([blended_weight(setting.link.code, row.blend, z) for z in scores])
    return float(np.max(setting.link.variance_bound(scores, setting.reward_bound) / weights))
