"""The part of a policy that says what its estimate is, and what follows from it: predictions and explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.policies.arm_forms import ArmForm, Record
from tacit.policies.beliefs import AnyBelief, PointBelief, predicted, predicted_one
from tacit.policies.explanation import ArmOutlook, ChoiceExplanation, Explanation, compared, explained
from tacit.policies.one_life import PolicyLife
from tacit.policies.setting import Setting
from tacit.typing import FloatArray

if TYPE_CHECKING:
    from tacit.features.encoding import Arms

Prediction = tuple[float | None, float | None]
"""Mean reward and its standard deviation, each None where it is not known."""


class Predicting:
    """What arms are predicted by, and explained with."""

    name: ClassVar[str]
    private: ClassVar[bool]
    state: Any
    setting: Setting
    _arms: ArmForm
    _life: PolicyLife

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        raise NotImplementedError

    @property
    def belief(self) -> AnyBelief | None:
        """What arms are predicted by; None for a policy that has no estimate.

        Its arrays are those of the state, and change with it.
        """
        theta = getattr(self.state, "theta", None)
        return PointBelief(theta) if theta is not None and theta.ndim == 1 else None

    def _predictions(self, rows: FloatArray) -> list[Prediction]:
        """What is predicted of arms in the form that steps take, shape (M, row size)."""
        belief = self.belief
        if belief is None:
            return [(None, None)] * len(rows)
        if len(rows) == 1:
            mean, sd = predicted_one(self.setting.link, belief, rows[0])
            return [(mean, None if sd != sd else sd)]
        means, sds = predicted(self.setting.link, belief, rows)
        return [(mean, None if sd != sd else sd) for mean, sd in zip(means.tolist(), sds.tolist(), strict=True)]

    def explain(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        user: Record | None = None,
        arms: Arms | None = None,
        arm: int | None = None,
    ) -> Explanation | ChoiceExplanation:
        """Explain what was learned, or with a user's arms why one of them is better than the others.

        All of it follows from the newest estimate, of a private policy from releases; nothing is kept, and the clock
        does not go on.

        Parameters
        ----------
        contexts, user, arms
            One user's arms, in the form that ``select`` takes; none for an explanation of the estimate.
        arm : int, optional
            The arm to compare with the best of the others; by default the best one by what is predicted.

        Returns
        -------
        Explanation or ChoiceExplanation
            Every feature with its weight and standard deviation, or with what it contributes to the difference; prints
            as a table with bars.
        """
        form = self._arms
        rows = None if contexts is None and arms is None and user is None else form.one(contexts, user, arms)[0]
        with self._life.free():
            belief = self.belief
            if belief is None:
                raise InvalidInput(f"{self.name} has no estimate to explain anything by")
            if rows is None:
                return explained(form.names, belief.theta, belief.marginal_sds(), form.scales, self._estimate_text())
            return self._compared(belief, rows, arm)

    def _compared(self, belief: AnyBelief, rows: FloatArray, arm: int | None) -> ChoiceExplanation:
        if arm is not None and arm not in range(len(rows)):
            raise InvalidInput(f"arm must be one of the {len(rows)} arms, numbered from 0, not {arm!r}")
        scores = belief.scores(rows).tolist()
        outlooks = [
            ArmOutlook(number, mean or 0.0, sd, scores[number])
            for number, (mean, sd) in enumerate(self._predictions(rows))
        ]
        dense = self._arms.dense(rows)
        return compared(self._arms.names, belief.theta, dense, outlooks, arm, self._estimate_text())

    def _estimate_text(self) -> str:
        """What an explanation is made of, in words."""
        told = f"From the estimate after {self.decisions} decisions"
        return f"{told}, made of releases alone." if self.private else f"{told}, which no privacy protects."
