"""What a policy says about its privacy: target, spent, remaining, and the sentence they stand for."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tacit.errors import InvalidInput
from tacit.privacy.events import RenyiRelease

if TYPE_CHECKING:
    from tacit.privacy.budget import Budget
    from tacit.privacy.ledger import Entry

Model = Literal["joint", "shuffle", "local", "central", "none"]

NOISE_OFF: Final = "The budget is unlimited (epsilon = inf): noise is off and there is no privacy."
LARGE_EPSILON: Final = 10.0
"""Above it a report says that its guarantee says little: e^10 is 22,026."""
_SHOWN: Final = 24  # entries printed; to_json always has all of them

_MODELS: Final[dict[str, str]] = {
    "joint": "joint differential privacy: whatever all other users are shown, together, is "
    "{claim} in any one user's {rows}",
    "shuffle": "shuffle differential privacy: what the shuffler hands to the analyzer is {claim} in any one "
    "user's {rows}",
    "local": "local differential privacy: what leaves a user's device is {claim} in that user's {rows}",
    "central": "central differential privacy: everything released is {claim} in any one user's {rows}",
}


@dataclass(frozen=True)
class PrivacyReport:
    """A snapshot of a ledger: ``str`` formats it as a table, ``to_json`` as JSON.

    ``spent_mu`` and ``remaining_mu`` are Gaussian-DP parameters of one row; under Renyi accounting they are
    the parameters of a Gaussian of the same epsilon, and of the largest Gaussian that still fits.

    Parameters
    ----------
    target_epsilon, delta : float
        The budget of one user.
    rounds_per_user : int
        Most rounds that the budget covers for one user.
    spent_epsilon : float
        Epsilon spent so far, at ``delta``.
    spent_mu, remaining_mu : float
        Gaussian-DP parameter spent so far, and what is left.
    entries : tuple of Entry
        All releases.
    noise : str
        Description of the noise source.
    model : {"joint", "shuffle", "local", "central", "none"}
        Model of differential privacy.
    accounting : str
        Rule of composition.
    guarantee : str
        The sentence that the numbers stand for.
    warnings : tuple of str, optional
        What a reader should know besides.
    slack : float, default 0
        Eta of the lattice lemma.
    draws : int, default 0
        Number of exact noise values that can count for one user.

    Examples
    --------
    >>> from tacit.privacy import Budget, Ledger
    >>> report = Ledger(Budget(epsilon=1.0, delta=1e-6)).report(model="joint")
    >>> report.spent_epsilon, report.model, report.protects
    (0.0, 'joint', 'a single visit: epsilon is per visit. For a person with k visits, pass rounds_per_user=k')
    """

    target_epsilon: float
    delta: float
    rounds_per_user: int
    spent_epsilon: float
    spent_mu: float
    remaining_mu: float
    entries: tuple[Entry, ...]
    noise: str
    model: Model
    accounting: str
    guarantee: str
    warnings: tuple[str, ...] = ()
    slack: float = 0.0
    """Eta of the lattice lemma: exact noise is not quite Gaussian, and twice this is in ``spent_epsilon`` for it."""
    draws: int = 0
    """Numbers of exact noise that can count for one user."""

    @property
    def protects(self) -> str:
        """In words, whether epsilon is that of a visit or of a person."""
        if self.model == "none" or math.isinf(self.target_epsilon):
            return "nothing"
        return protection_text(self.rounds_per_user)

    def to_dict(self) -> dict[str, object]:
        """Write the report as plain data.

        Returns
        -------
        dict
            Plain data, in which infinite numbers are None.
        """
        numbers = ("target_epsilon", "delta", "spent_epsilon", "spent_mu", "remaining_mu", "slack")
        data: dict[str, object] = {name: _number(getattr(self, name)) for name in numbers}
        data |= {"draws": self.draws, "rounds_per_user": self.rounds_per_user, "protects": self.protects}
        data |= {"noise": self.noise, "model": self.model}
        data |= {"accounting": self.accounting, "guarantee": self.guarantee, "warnings": list(self.warnings)}
        data["entries"] = [_row(entry) for entry in self.entries]
        return data

    def to_json(self) -> str:
        """Write the report as text.

        Returns
        -------
        str
            Strict JSON, in which infinite numbers are null.
        """
        return json.dumps(self.to_dict(), allow_nan=False)

    def __str__(self) -> str:
        head = [
            ("target", f"epsilon = {self.target_epsilon:.6g}, delta = {self.delta:.6g}"),
            ("spent", f"epsilon = {self.spent_epsilon:.6g} (mu = {self.spent_mu:.6g})"),
            ("remaining", f"mu = {self.remaining_mu:.6g}"),
            ("rounds per user", str(self.rounds_per_user)),
            ("protects", self.protects),
            ("noise", self.noise),
            ("accounting", self.accounting),
        ]
        lines = [f"{label:<16}{text}" for label, text in head]
        lines += ["", *_table(self.entries), "", self.guarantee]
        return "\n".join(lines + [f"WARNING: {warning}" for warning in self.warnings])


def protection_text(rounds_per_user: int) -> str:
    """What epsilon is about: a manager reads *per person* where nothing is said."""
    if rounds_per_user == 1:
        return "a single visit: epsilon is per visit. For a person with k visits, pass rounds_per_user=k"
    return f"a person with up to {rounds_per_user} visits: epsilon is per person. Further visits are not covered"


def guarantee_text(budget: Budget, model: Model) -> str:
    """The sentence the numbers stand for: model, adjacency, unit of privacy."""
    if model not in (*_MODELS, "none"):
        raise InvalidInput(f"model must be one of {[*_MODELS, 'none']}, got {model!r}")
    if budget.unlimited:
        return NOISE_OFF
    if model == "none":
        return "No differential privacy is claimed."
    rounds = budget.rounds_per_user
    several = f"rows (arm sets and rewards of up to {rounds} rounds)"
    rows = "row (arm set and reward)" if rounds == 1 else several
    claim = f"({budget.epsilon:.6g}, {budget.delta:.6g})-differentially private"
    text = _MODELS[model].format(claim=claim, rows=rows)
    return f"{text[0].upper()}{text[1:]}. Adjacency: replacement."


def epsilon_warnings(budget: Budget) -> tuple[str, ...]:
    """What is said of a target epsilon that promises nothing, or little."""
    if budget.unlimited:
        return (NOISE_OFF,)
    if budget.epsilon <= LARGE_EPSILON:
        return ()
    whom = "visit" if budget.rounds_per_user == 1 else "person"
    return (
        f"The target epsilon = {budget.epsilon:.6g} is above {LARGE_EPSILON:g}, where the guarantee says little: what "
        f"is released may multiply the odds of a guess about a {whom} by e^{budget.epsilon:.6g}, which is more than "
        "22,000.",
    )


def _table(entries: tuple[Entry, ...]) -> list[str]:
    """Aligned columns, one line per release."""
    if not entries:
        return ["no releases yet"]
    header = ("release", "cohort", "kind", "sensitivity", "noise sd", "count", "mu")
    rows = [header] + [_cells(entry) for entry in entries[:_SHOWN]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = ["  ".join(cells).rstrip() for cells in padded]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(header) - 1)))
    hidden = len(entries) - _SHOWN
    return lines + ([f"... and {hidden} more"] if hidden > 0 else [])


def _cells(entry: Entry) -> tuple[str, ...]:
    event = entry.event
    noise = "" if event.noise_sd is None else f"{event.noise_sd:.6g}"
    mu = "curve" if isinstance(event, RenyiRelease) else f"{event.mu:.6g}"
    cohort = "all" if entry.cohort is None else entry.cohort
    return event.name, cohort, event.kind, f"{event.sensitivity:.6g}", noise, str(event.count), mu


def _row(entry: Entry) -> dict[str, object]:
    event = entry.event
    data: dict[str, object] = {"name": event.name, "cohort": entry.cohort, "kind": event.kind}
    data |= {"sensitivity": event.sensitivity, "noise_sd": _number(event.noise_sd), "count": event.count}
    return data | {"mu": None if isinstance(event, RenyiRelease) else _number(event.mu), "note": event.note}


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def no_privacy() -> PrivacyReport:
    """The report of a policy that learns from raw data."""
    return PrivacyReport(
        target_epsilon=math.inf,
        delta=0.0,
        rounds_per_user=1,
        spent_epsilon=math.inf,
        spent_mu=math.inf,
        remaining_mu=0.0,
        entries=(),
        noise="none",
        model="none",
        accounting="none",
        guarantee="No differential privacy is claimed: this policy learns from raw data.",
    )
