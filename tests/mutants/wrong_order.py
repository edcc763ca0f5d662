"""The fault that `tests.mutants.exclusions` is about: a public number added to the noise before the sum is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.estimation import optimizers
from tacit.estimation.plan import Regression, gradient_sum
from tacit.glm.rows import Selection
from tacit.typing import FloatArray


class PullBeforeSum:
    """The fault of 0.1.0's Newton step, g + (n + pull) in place of (g + n) + pull, to see that it is found.

    ``changes`` says what to put in place of what: module, attribute, value.  Descent had the right order, and gets the
    wrong one here too.
    """

    def __init__(self) -> None:
        self._exact = np.zeros(0)

    def changes(self) -> tuple[tuple[Any, str, Any], ...]:
        """What to change."""
        names = ("gradient_sum", "newton_step", "descent_step")
        return tuple((optimizers, name, getattr(self, f"_{name}")) for name in names)

    def _gradient_sum(self, problem: Regression, rows: Selection, theta: FloatArray, grid: float) -> FloatArray:
        self._exact = gradient_sum(problem, rows, theta, grid)
        return self._exact

    def _direction(self, released: FloatArray, pull: FloatArray) -> FloatArray:
        noise = released - self._exact  # without rounding: both are on the grid
        return np.asarray(self._exact + (noise + pull))

    def _newton_step(
        self, released: FloatArray, ridge: float, center: FloatArray, inverse: FloatArray, point: FloatArray
    ) -> FloatArray:
        return np.asarray(point - inverse @ self._direction(released, ridge * (point - center)))

    def _descent_step(
        self, released: FloatArray, ridge: float, center: FloatArray, rate: float, point: FloatArray
    ) -> FloatArray:
        return np.asarray(point - rate * self._direction(released, ridge * (point - center)))
