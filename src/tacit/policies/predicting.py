"""The part of a policy that says what its estimate is, and what follows from it: predictions and explanations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from tacit._compile.kinds import array_kind, kind_of
from tacit.errors import InvalidInput
from tacit.glm.links import LinkForm
from tacit.policies.arm_forms import ArmForm, Record
from tacit.policies.beliefs import AnyBelief, PointBelief, marginal_sds, predicted, score
from tacit.policies.explanation import ArmOutlook, ChoiceExplanation, Explanation, compared, explained
from tacit.policies.one_life import OneLife
from tacit.policies.setting import Setting
from tacit.typing import FloatArray

if TYPE_CHECKING:
    from tacit.features.encoding import Arms

Prediction = tuple[float, float | None]
"""Mean reward, and its standard deviation where it is known."""


class Predicting:
    """What arms are predicted by, and explained with."""

    name: ClassVar[str]
    private: ClassVar[bool]
    state: Any
    setting: Setting
    _arms: ArmForm
    _life: OneLife
    _judged_by: AnyBelief | None = None
    """The belief of the state that steps are bound to: its arrays change with the state."""
    _link_form: LinkForm
    _predict: Callable[..., tuple[float, float]] | None = None
    """What was bound to the belief's kind of arrays; None until then."""

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

    def _predicted(self, belief: AnyBelief, row: FloatArray) -> Prediction:
        """Of an arm in the form that kernels take."""
        predict = self._predict or self._bound_prediction(belief)
        mean, sd = predict(self._link_form, belief, row)
        return mean, None if math.isnan(sd) else sd

    def _bound_prediction(self, belief: AnyBelief) -> Callable[..., tuple[float, float]]:
        """The best form that there is: nothing is compiled or loaded before something is predicted."""
        kinds = kind_of(self._link_form), kind_of(belief), array_kind(1)
        found = self._predict = predicted.bound(kinds, self._unbind_prediction)
        return found

    def _unbind_prediction(self) -> None:
        """A better form has become ready."""
        self._predict = None

    def explain(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        user: Record | None = None,
        arms: Arms | None = None,
        arm: int | None = None,
    ) -> Explanation | ChoiceExplanation:
        """What was learned: every feature with its weight and standard deviation; prints as a table with bars.

        With a user's arms, given as to ``select``: why ``arm``, by default the best one by what is predicted, is better
        or worse than the best of the others.  All of it follows from the newest estimate, of a private policy from
        releases; nothing is kept, and the clock does not go on.
        """
        form = self._arms
        rows = None if contexts is None and arms is None and user is None else form.one(contexts, user, arms)[0]
        with self._life.free():
            belief = self.belief
            if belief is None:
                raise InvalidInput(f"{self.name} has no estimate to explain anything by")
            if rows is None:
                sds = marginal_sds(belief)
                return explained(form.names, belief.theta, sds, form.scales, self._estimate_text())
            return self._compared(belief, rows, arm)

    def _compared(self, belief: AnyBelief, rows: FloatArray, arm: int | None) -> ChoiceExplanation:
        if arm is not None and arm not in range(len(rows)):
            raise InvalidInput(f"arm must be one of the {len(rows)} arms, numbered from 0, not {arm!r}")
        outlooks = []
        for number, row in enumerate(rows):
            mean, sd = self._predicted(belief, row)
            outlooks.append(ArmOutlook(number, mean, sd, score(belief, row)))
        dense = self._arms.dense(rows)
        return compared(self._arms.names, belief.theta, dense, outlooks, arm, self._estimate_text())

    def _estimate_text(self) -> str:
        """What an explanation is made of, in words."""
        told = f"From the estimate after {self.decisions} decisions"
        return f"{told}, made of releases alone." if self.private else f"{told}, which no privacy protects."
