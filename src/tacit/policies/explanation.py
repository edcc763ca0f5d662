"""What a policy has learned, feature by feature, and why it would choose an arm: from its newest estimate alone.

Of a private policy the estimate is made of releases, so that an explanation tells nothing that was not released.  "Why
this arm" takes the record again: nothing is kept for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tacit.errors import InvalidInput
from tacit.extras import named_extras
from tacit.glm.links import Link
from tacit.policies.admission import ArmForm
from tacit.policies.beliefs import AnyBelief, predictions
from tacit.typing import FloatArray

_BAR: Final = 20
"""Characters of the longest bar."""


@dataclass(frozen=True)
class Feature:
    """One feature: what it is worth."""

    name: str
    weight: float
    """The feature's entry of the estimated theta."""
    sd: float | None
    """Standard deviation of the weight, privacy noise included; None where the policy knows none."""
    largest: float
    """The largest absolute value that it can have in a row."""

    @property
    def effect(self) -> float:
        """How far the feature moves a score where it is largest."""
        return self.weight * self.largest


@dataclass(frozen=True)
class Explanation:
    """All features, the strongest first; prints as a table with bars."""

    features: tuple[Feature, ...]
    source: str
    """What the weights are made of, in words."""

    def __str__(self) -> str:
        return self.text()

    def text(self, most: int = 30) -> str:
        """A table of the strongest features."""
        shown = self.features[:most]
        width = max((len(feature.name) for feature in shown), default=0)
        unit = max((abs(feature.effect) for feature in shown), default=0.0)
        lines = [f"{'feature':<{width}}  {'weight':>8}  {'sd':>7}  {'effect':>8}"]
        for feature in shown:
            sd = "" if feature.sd is None else f"{feature.sd:.3f}"
            bar = _bar(feature.effect, unit)
            numbers = f"{feature.weight:8.3f}  {sd:>7}  {feature.effect:8.3f}"
            lines.append(f"{feature.name:<{width}}  {numbers}  {bar}".rstrip())
        if len(self.features) > most:
            lines.append(f"... and {len(self.features) - most} weaker ones")
        return "\n".join([*lines, self.source])

    def to_json(self) -> dict[str, Any]:
        """The explanation in what JSON can hold."""
        return {"features": [asdict(feature) | {"effect": feature.effect} for feature in self.features]}

    def plot(self, path: str | Path, most: int = 30) -> None:
        """A bar for each of the strongest features, with two standard deviations to both sides, as a picture."""
        shown = self.features[:most]
        spreads = [2.0 * feature.largest * (feature.sd or 0.0) for feature in shown]
        _picture(
            path,
            [feature.name for feature in shown],
            [feature.effect for feature in shown],
            spreads,
            "effect on the score where the feature is largest (two standard deviations)",
        )


@dataclass(frozen=True)
class ArmOutlook:
    """What is predicted of one arm."""

    arm: int
    mean: float
    """Predicted mean reward."""
    sd: float | None
    """Standard deviation of that prediction."""
    score: float


@dataclass(frozen=True)
class ChoiceExplanation:
    """Why one arm is predicted to earn more than another, feature by feature; prints as a table with bars."""

    chosen: ArmOutlook
    other: ArmOutlook | None
    """The arm it is compared with: the best of the others, by what is predicted; None when there is no other."""
    arms: tuple[ArmOutlook, ...]
    """All arms, in the order in which they were given."""
    parts: tuple[tuple[str, float], ...]
    """Features and what they add to the difference of the two scores, the strongest first; they sum up to it."""
    source: str

    def __str__(self) -> str:
        return self.text()

    def text(self, most: int = 15) -> str:
        """What is predicted of both arms, and the features that make the difference."""
        shown = self.parts[:most]
        width = max((len(name) for name, _ in shown), default=0)
        unit = max((abs(part) for _, part in shown), default=0.0)
        lines = [f"arm {self.chosen.arm}: {_predicted(self.chosen)}"]
        if self.other is not None:
            lines.append(f"arm {self.other.arm}: {_predicted(self.other)}")
            lines.append(f"what speaks for arm {self.chosen.arm} against arm {self.other.arm}:")
        lines += [f"{name:<{width}}  {part:8.3f}  {_bar(part, unit)}".rstrip() for name, part in shown]
        return "\n".join([*lines, self.source])

    def to_json(self) -> dict[str, Any]:
        """The explanation in what JSON can hold."""
        return asdict(self) | {"parts": [{"feature": name, "difference": part} for name, part in self.parts]}


def explained(
    names: Sequence[str], weights: FloatArray, sds: FloatArray, largest: FloatArray, source: str
) -> Explanation:
    """An explanation of all features; a standard deviation that is not known is NaN."""
    features = [
        Feature(name, float(weight), None if math.isnan(sd) else float(sd), float(size))
        for name, weight, sd, size in zip(names, weights, sds, largest, strict=True)
    ]
    features.sort(key=lambda feature: -abs(feature.effect))
    return Explanation(tuple(features), source)


def explanation(
    form: ArmForm, link: Link, belief: AnyBelief, source: str, rows: FloatArray | None, arm: int | None
) -> Explanation | ChoiceExplanation:
    """An explanation of the estimate; with the rows of a user's arms, of why one of them is better than the others."""
    if rows is None:
        return explained(form.names, belief.theta, belief.marginal_sds(), form.scales, source)
    if arm is not None and arm not in range(len(rows)):
        raise InvalidInput(f"arm must be one of the {len(rows)} arms, numbered from 0, not {arm!r}")
    scores = belief.scores(rows).tolist()
    outlooks = [
        ArmOutlook(number, mean or 0.0, sd, score)
        for number, (mean, sd, score) in enumerate(zip(*predictions(link, belief, rows), scores, strict=True))
    ]
    return compared(form.names, belief.theta, form.dense(rows), outlooks, arm, source)


def compared(
    names: Sequence[str],
    weights: FloatArray,
    rows: FloatArray,
    outlooks: Sequence[ArmOutlook],
    arm: int | None,
    source: str,
) -> ChoiceExplanation:
    """Why ``arm``, by default the best one, is better or worse than the best of the others; rows have d numbers."""
    chosen = max(outlooks, key=lambda outlook: outlook.score) if arm is None else outlooks[arm]
    others = [outlook for outlook in outlooks if outlook.arm != chosen.arm]
    other = max(others, key=lambda outlook: outlook.score) if others else None
    difference = weights * (rows[chosen.arm] - (0.0 if other is None else rows[other.arm]))
    parts = [(name, float(part)) for name, part in zip(names, difference, strict=True) if part != 0.0]
    parts.sort(key=lambda part: -abs(part[1]))
    return ChoiceExplanation(chosen, other, tuple(outlooks), tuple(parts), source)


def _predicted(outlook: ArmOutlook) -> str:
    spread = "" if outlook.sd is None else f" ± {outlook.sd:.3f}"
    return f"predicted reward {outlook.mean:.3f}{spread}, score {outlook.score:.3f}"


def _bar(value: float, unit: float) -> str:
    """A bar to the right for what is positive, and one of another kind for what is negative."""
    length = round(_BAR * abs(value) / unit) if unit > 0.0 else 0
    return ("█" if value >= 0.0 else "░") * length


def _picture(path: str | Path, names: list[str], values: list[float], spreads: list[float], label: str) -> None:
    with named_extras():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.0 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    colors = ["#2a6f97" if value >= 0.0 else "#bc4749" for value in values]
    axes.barh(places, values, xerr=spreads, color=colors, ecolor="#666666", height=0.7)
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.axvline(0.0, color="#666666", linewidth=0.8)
    axes.set_xlabel(label)
    figure.savefig(path, dpi=150)
