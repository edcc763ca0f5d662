"""The ledger: an append-only list of releases, and a filter that refuses what does not fit."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from tacit._validate import finite
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy.budget import Budget
from tacit.privacy.composition import Accounting, Charge, Totals, totals
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, PrivacyEvent, RenyiRelease
from tacit.privacy.report import Model, PrivacyReport, epsilon_warnings, guarantee_text

_KINDS: Final[dict[str, type[GaussianRelease | DiscreteGaussianRelease | RenyiRelease]]] = {
    "gaussian": GaussianRelease,
    "discrete": DiscreteGaussianRelease,
    "renyi": RenyiRelease,
}
_STRENGTH: Final[tuple[Accounting, ...]] = ("gaussian", "lattice", "renyi")
_FORMAT: Final = 1


@dataclass(frozen=True)
class Entry:
    """One recorded release of a ledger.

    Parameters
    ----------
    index : int
        Number of the release, from 0.
    event : GaussianRelease, DiscreteGaussianRelease or RenyiRelease
        What was charged.
    cohort : str, optional
        The rows that it concerned; None for all rows.
    """

    index: int
    event: PrivacyEvent
    cohort: str | None = None


class Ledger:
    """An append-only list of releases that refuses a release which does not fit the budget.

    Parameters
    ----------
    budget : Budget
        What all releases together may spend.
    accounting : {"gaussian", "lattice", "renyi"}, optional
        Rule of composition; by default the one that the first charge needs.
    order : float, optional
        Renyi order above 1, fixed in advance; implies ``accounting="renyi"``.

    Formal guarantee
    ----------------
    Adjacency: one user's rows replaced (up to ``budget.rounds_per_user`` of them). All
    releases whose events were charged before their noise was drawn are together (epsilon, delta)-DP,
    whatever releases were asked for in the light of earlier ones:

    * ``gaussian``: the sum of mu_j^2 is held below mu^2, a valid filter for adaptively chosen mu_j (Smith
      and Thakurta, arXiv 2210.17520; docs/theory.md#the-pathwise-filter), and exact.
    * ``lattice``: the same for discrete Gaussian releases, alone or with continuous ones, against a limit
      lowered by 1e-4, the reserve that pays for discreteness (``tacit.privacy.lattice``).
    * ``renyi``: curves add. With ``order=alpha`` the divergence of that order is held below its budget, a
      valid filter for adaptive choices (Feldman and Zrnic, arXiv 2008.11193, section 4). Without it the
      best order at the end is used, which is sound when the **parameters** of the releases were fixed in
      advance, as those of the shuffle protocol are.

    The accounting is fixed by the first charge, or by ``accounting=``, because a ledger that changed its
    rule in the light of releases would not be a filter. An event which the chosen rule cannot compose is
    refused.

    Cohorts: see ``tacit.privacy.composition``. Rows of different named cohorts must be disjoint; a row
    moving between two cohorts is covered. Sums are compared with a relative slack of 1e-11, so that plans
    which add up to the budget in exact arithmetic pass.

    Examples
    --------
    >>> from tacit.privacy import Budget, GaussianRelease, Ledger
    >>> ledger = Ledger(Budget(epsilon=1.0, delta=1e-6))
    >>> ledger.charge(GaussianRelease("sum of clicks", sensitivity=1.0, noise_sd=10.0)).index
    0
    >>> round(ledger.epsilon_spent, 4)
    0.3969
    >>> ledger.fits(GaussianRelease("sum of clicks", sensitivity=1.0, noise_sd=1.0))
    False
    """

    def __init__(self, budget: Budget, *, accounting: Accounting | None = None, order: float | None = None) -> None:
        if accounting is not None and accounting not in get_args(Accounting):
            raise InvalidInput(f"accounting must be one of {_STRENGTH}, got {accounting!r}")
        if order is not None:
            if not finite("order", order) > 1.0:
                raise InvalidInput(f"order must be above 1, got {order!r}")
            if accounting not in (None, "renyi"):
                raise InvalidInput(f"order is for accounting 'renyi', got accounting {accounting!r}")
            accounting, order = "renyi", float(order)
        self._budget = budget
        self._accounting = accounting
        self._order = order
        self._entries: list[Entry] = []
        self._summed: tuple[int, Totals] | None = None

    @property
    def budget(self) -> Budget:
        """The budget that releases are charged to."""
        return self._budget

    @property
    def accounting(self) -> Accounting:
        """The rule of composition in force; ``gaussian`` until the first charge says otherwise."""
        return self._accounting or "gaussian"

    @property
    def order(self) -> float | None:
        """The Renyi order fixed in advance, if any."""
        return self._order

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded so far."""
        return tuple(self._entries)

    @property
    def mu_spent(self) -> float:
        """Gaussian-DP parameter spent on the worst placed row (Renyi accounting: of the same epsilon)."""
        return self._totals().mu

    @property
    def epsilon_spent(self) -> float:
        """Epsilon spent on the worst placed user, at the delta of the budget."""
        return self._totals().epsilon

    def fits(self, event: PrivacyEvent, cohort: str | None = None) -> bool:
        """Return whether `charge` would accept a release; nothing is recorded.

        Parameters
        ----------
        event : GaussianRelease, DiscreteGaussianRelease or RenyiRelease
            The release.
        cohort : str, optional
            The rows that it concerns; None for all rows.

        Returns
        -------
        bool
            True when the release fits the budget.
        """
        return self._with(event, cohort)[1].fits

    def charge(self, event: PrivacyEvent, cohort: str | None = None) -> Entry:
        """Record a release; call it before noise is drawn.

        Parameters
        ----------
        event : GaussianRelease, DiscreteGaussianRelease or RenyiRelease
            The release.
        cohort : str, optional
            The rows that it concerns; None for all rows. Rows of different cohorts must be disjoint.

        Returns
        -------
        Entry
            What was recorded.

        Raises
        ------
        BudgetExceeded
            When the release does not fit; nothing is recorded.
        """
        accounting, after = self._with(event, cohort)
        if not after.fits:
            raise BudgetExceeded(self._refusal(event, cohort, accounting, after))
        entry = Entry(len(self._entries), event, cohort)
        self._accounting = accounting
        self._entries.append(entry)
        return entry

    def report(self, model: Model = "central", noise: str = "", warnings: tuple[str, ...] = ()) -> PrivacyReport:
        """Return a snapshot of the ledger.

        Parameters
        ----------
        model : {"joint", "shuffle", "local", "central", "none"}, default "central"
            Model of differential privacy that the guarantee is stated in.
        noise : str, optional
            Description of the noise source (`NoiseSource.describe`).
        warnings : tuple of str, optional
            Added to those about the budget.

        Returns
        -------
        PrivacyReport
            Target, spent and remaining budget, and all entries.
        """
        state = self._totals()
        return PrivacyReport(
            target_epsilon=self._budget.epsilon,
            delta=self._budget.delta,
            rounds_per_user=self._budget.rounds_per_user,
            spent_epsilon=state.epsilon,
            spent_mu=state.mu,
            remaining_mu=state.remaining_mu,
            entries=self.entries,
            noise=noise or "not stated",
            model=model,
            accounting=self._describe_accounting(),
            guarantee=guarantee_text(self._budget, model),
            warnings=epsilon_warnings(self._budget) + tuple(warnings),
            slack=state.slack,
            draws=state.draws,
        )

    def to_dict(self) -> dict[str, object]:
        """Write the ledger as plain data for saving.

        Returns
        -------
        dict
            Plain data with a digest, for `from_dict`.
        """
        body: dict[str, object] = {
            "format": _FORMAT,
            "budget": _pack(dataclasses.asdict(self._budget)),
            "accounting": self._accounting,
            "order": self._order,
            "entries": [_pack_entry(entry) for entry in self._entries],
        }
        return body | {"digest": _digest(body)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Ledger:
        """Rebuild a saved ledger by charging every entry anew; data that does not check is refused.

        Parameters
        ----------
        data : mapping
            What `to_dict` gave.

        Returns
        -------
        Ledger
            A ledger equal to the one that was saved.
        """
        body = {key: value for key, value in data.items() if key != "digest"}
        if set(body) != {"format", "budget", "accounting", "order", "entries"} or body["format"] != _FORMAT:
            raise InvalidInput(f"saved ledger must have format {_FORMAT} and its fields, got {sorted(data)}")
        if data.get("digest") != _digest(body):
            raise InvalidInput("saved ledger does not match its digest: it was damaged or edited; restore a backup")
        try:
            return cls._replay(body)
        except (TypeError, KeyError, AttributeError, BudgetExceeded) as error:
            raise InvalidInput(f"saved ledger is not consistent: {error}") from error

    @classmethod
    def _replay(cls, body: dict[str, object]) -> Ledger:
        budget, entries = body["budget"], body["entries"]
        if not isinstance(budget, dict) or not isinstance(entries, list):
            raise InvalidInput("saved ledger must hold a budget and a list of entries")
        arguments: dict[str, object] = {"accounting": body["accounting"], "order": body["order"]}
        ledger = cls(Budget(**_unpack(budget)), **arguments)  # type: ignore[arg-type]
        for item in entries:
            event, cohort = _unpack_entry(item)
            ledger.charge(event, cohort)
        return ledger

    def _describe_accounting(self) -> str:
        if self.accounting != "renyi":
            return self.accounting
        if self._order is not None:
            return f"renyi, order {self._order:g} fixed in advance"
        return "renyi, best order, parameters of the releases fixed in advance"

    def _remaining(self, cohort: str | None, accounting: Accounting) -> float:
        charges = [charge for charge in self._charges() if cohort is None or charge[1] in (None, cohort)]
        return totals(charges, self._budget, accounting, self._order).remaining_mu

    def _totals(self) -> Totals:
        """Totals of all entries, computed once per number of entries, since a service asks after every release."""
        count = len(self._entries)
        if self._summed is None or self._summed[0] != count:
            self._summed = count, totals(self._charges(), self._budget, self.accounting, self._order)
        return self._summed[1]

    def _charges(self) -> list[Charge]:
        return [(entry.event, entry.cohort) for entry in self._entries]

    def _with(self, event: PrivacyEvent, cohort: str | None) -> tuple[Accounting, Totals]:
        """The rule in force, and the totals if the event were recorded."""
        accounting = self._rule_for(event)
        if cohort is not None and not (isinstance(cohort, str) and cohort):
            raise InvalidInput(f"cohort must be None or a non-empty text, got {cohort!r}")
        return accounting, totals([*self._charges(), (event, cohort)], self._budget, accounting, self._order)

    def _rule_for(self, event: PrivacyEvent) -> Accounting:
        if type(event) not in _KINDS.values():
            raise InvalidInput(f"event must be one of {sorted(_KINDS)} releases, got {type(event).__name__}")
        needed = _STRENGTH[list(_KINDS).index(event.kind)]
        rule = self._accounting or needed
        if _STRENGTH.index(rule) < _STRENGTH.index(needed):
            remedy = f"open the ledger with Ledger(budget, accounting={needed!r}) before the first charge"
            raise InvalidInput(f"event {event.name!r} is a {needed} release, accounting is {rule!r}: {remedy}")
        rounds = self._budget.rounds_per_user
        if isinstance(event, RenyiRelease) and event.reach is not None:
            shift = rounds * event.sensitivity
            if shift > event.reach * (1.0 + 1e-12):
                raise InvalidInput(
                    f"event {event.name!r} states its curve up to reach = {event.reach:g}, but "
                    f"rounds_per_user = {rounds} needs {shift:g}: compute the curve for larger shifts"
                )
        return rule

    def _refusal(self, event: PrivacyEvent, cohort: str | None, accounting: Accounting, after: Totals) -> str:
        before, remaining = self._totals(), self._remaining(cohort, accounting)
        alone = totals([(event, cohort)], self._budget, accounting, self._order)
        where = "all users" if cohort is None else f"cohort {cohort!r}"
        target = f"epsilon = {self._budget.epsilon:g}, delta = {self._budget.delta:g}"
        return (
            f"release {event.name!r} for {where} does not fit the budget ({target}): asked epsilon = "
            f"{alone.epsilon:.6g} (mu = {alone.mu:.6g}), spent epsilon = {before.epsilon:.6g} "
            f"(mu = {before.mu:.6g}), remaining mu = {remaining:.6g}, in all epsilon = {after.epsilon:.6g}. "
            f"Nothing was recorded. Remedy: {_remedy(event, remaining)}"
        )


def _remedy(event: PrivacyEvent, remaining: float) -> str:
    if isinstance(event, RenyiRelease) or remaining <= 0.0:
        return "stop releasing (what was published stays valid), or start with a larger budget or more noise."
    needed = math.sqrt(event.count) * event.sensitivity / remaining
    if needed <= event.noise_sd and isinstance(event, DiscreteGaussianRelease):
        return "use a finer grid, or draw fewer noise values: the reserve for discretisation is spent."
    if needed <= event.noise_sd:
        return "rows that move between cohorts cost too much: state a smaller moving_sensitivity, or add noise."
    return f"release with noise_sd >= {needed:.6g} (it is {event.noise_sd:.6g}), fewer times, or not at all."


def _pack(fields: Mapping[str, object]) -> dict[str, object]:
    """JSON-able copy; infinity becomes the text "inf", since strict JSON has no number for it."""
    packed: dict[str, object] = {}
    for name, value in fields.items():
        items = list(value) if isinstance(value, tuple) else value
        if isinstance(items, list):
            packed[name] = ["inf" if item == math.inf else item for item in items]
        else:
            packed[name] = "inf" if items == math.inf else items
    return packed


def _unpack(fields: Mapping[str, object]) -> dict[str, object]:
    unpacked: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, list):
            unpacked[name] = tuple(math.inf if item == "inf" else item for item in value)
        else:
            unpacked[name] = math.inf if value == "inf" and name not in ("name", "note") else value
    return unpacked


def _pack_entry(entry: Entry) -> dict[str, object]:
    return {"kind": entry.event.kind, "cohort": entry.cohort, "event": _pack(vars(entry.event))}


def _unpack_entry(item: object) -> tuple[PrivacyEvent, str | None]:
    if not (isinstance(item, dict) and set(item) == {"kind", "cohort", "event"} and item["kind"] in _KINDS):
        raise InvalidInput(f"saved entry must have a known kind, a cohort and an event, got {item!r}")
    factory = _KINDS[item["kind"]]
    fields = _unpack(item["event"])
    if set(fields) != {field.name for field in dataclasses.fields(factory)}:
        raise InvalidInput(f"saved {item['kind']} release has fields {sorted(fields)}")
    return factory(**fields), item["cohort"]  # type: ignore[arg-type]


def _digest(body: Mapping[str, object]) -> str:
    """SHA-256 of the canonical JSON: detects damage, not an attacker."""
    try:
        text = json.dumps(body, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"saved ledger must be plain JSON data: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()
