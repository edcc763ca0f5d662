"""Private policies: a budget, a ledger that every release is charged to, and recovery from what is public."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from tacit.policies.config import Config, PrivateConfig
from tacit.policies.policy import Policy
from tacit.policies.setting import PrivateSetting, make_private_setting
from tacit.policies.state import Snapshot, digest, public_part, taken
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness import Randomness
from tacit.privacy.report import PrivacyReport
from tacit.typing import FloatArray

Private = TypeVar("Private", bound="PrivatePolicy")
_MANY_NUMBERS: Final = 10_000
"""From here on a release takes a millisecond and more."""
_AT_THE_BOUND: Final = 0.999
"""Share of theta_bound from which an estimate counts as lying on it: projections are rounded."""


class PrivatePolicy(Policy):
    """A policy whose releases are charged to a ledger.

    A subclass states its ``guarantee``, charges ``self.ledger`` before it releases anything, and hands what it releases
    outside of a stream to ``self.publisher``.  Fields of its state that depend on rows other than through releases are
    annotated ``Secret[...]``; ``_drop_raw`` empties them.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6)
    >>> isinstance(policy, tacit.PrivatePolicy), policy.privacy.target_epsilon
    (True, 1.0)
    """

    config_type: ClassVar[type[Config]] = PrivateConfig
    private: ClassVar[bool] = True
    _follows_releases: ClassVar[frozenset[str]] = frozenset()
    """Whole numbers of the public state, or ``ledger``, that follow the values of releases and not the clock alone."""
    setting: PrivateSetting
    ledger: Ledger

    def _make_setting(self) -> PrivateSetting:
        return make_private_setting(self.config)

    def _make_randomness(self) -> Randomness:
        config = self.config
        noise = config.noise or (self._default_noise() if config.seed is None else "fast")
        return Randomness.make(config.seed, noise, private=not config.budget.unlimited)

    def _default_noise(self) -> str:
        """Noise kind when no seed is given: exact, which leaves nothing to low-order bits of floating-point numbers."""
        return "exact"

    def _open_ledger(self) -> None:
        self._recovered_at: list[int] = []
        """The decisions after which this policy was recovered from a file (`tacit.load`, ``recover=True``)."""
        self.ledger = Ledger(self.setting.budget)

    def _begin(self) -> None:
        if self.config.seed is None:
            self._pending.renumber()  # no other life's, and no other policy's; those of simulations begin at 0

    @property
    def _secret_memo(self) -> slice:
        """Which numbers of a memo hold a secret of the deciding user's own, such as the noise of that user's device."""
        return slice(0, 0)

    def _drop_raw(self) -> None:
        """Empty every secret field of the state, and open what is to be released from now on as a new cohort."""

    def _warnings(self) -> tuple[str, ...]:
        """What the privacy report must say beyond the figures."""
        return ()

    def _ended(self) -> bool:
        """Whether nothing will be released any more; a function of the clock."""
        return False

    def _notices(self) -> tuple[str, ...]:
        """What the report says of the estimate and the horizon; functions of releases and of the clock."""
        horizon = self.setting.horizon
        outlived = horizon_notices(self.decisions, horizon, ended=self._ended())
        if self.config.noise == "fast" and self.config.seed is None:
            outlived += ("noise 'fast' is for simulations: whoever sees enough of it can tell the rest.",)
        return bound_notices(self.estimate, self.setting.theta_bound) + outlived

    def _cohort(self, name: str) -> str:
        """A cohort of this life: rows of one life are in no other's."""
        return f"recovery {len(self._recovered_at)}, {name}" if self._recovered_at else name

    @cached_property
    def _total_mu(self) -> float:
        """Gaussian-DP parameter that all releases together may spend on one row."""
        return self.randomness.ticks.mu_budget(self.setting.budget)

    @property
    def estimate(self) -> FloatArray:
        """The newest estimate of theta, made of releases; 0 as long as there is none."""
        belief = self.belief
        return np.zeros(self.setting.dim) if belief is None else belief.theta.copy()

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; prints as a table."""
        with self._life.free(), self._life.turn():
            recoveries = tuple(_recovery_text(decision) for decision in self._recovered_at)
            warnings = self._warnings() + self._notices() + recoveries
            noise = self.randomness.ticks.describe()
            return self.ledger.report(model=self.guarantee, noise=noise, warnings=warnings)

    def public_fingerprint(self) -> str:
        """Return a hash of all that others may see: public fields of the state, ledger and clock.

        Returns
        -------
        str
            Hexadecimal digits, a function of releases; equal public states have equal ones.
        """
        with self._life.free(), self._life.turn():
            header = {"ledger": self.ledger.to_dict()["digest"], "decisions": self.decisions}
            return digest(header, public_part(self.state))

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"ledger": self.ledger.to_dict(), "recovered_at": list(self._recovered_at)}

    def _restore(self, snapshot: Snapshot) -> None:
        super()._restore(snapshot)
        self.ledger = Ledger.from_dict(snapshot.header["ledger"])
        self._recovered_at = [int(decision) for decision in snapshot.header["recovered_at"]]

    def public_snapshot(self) -> Snapshot:
        """Return what is public of the state: releases, estimates, ledger and clock, and no row.

        Returns
        -------
        Snapshot
            The public part, from which ``from_public_snapshot`` goes on any number of times.
        """
        with self._life.free(), self._life.turn():
            arrays = {f"state.{path}": array for path, array in public_part(self.state).items()}
            header = {name: value for name, value in self._header().items() if name != "randomness"}
            return Snapshot(header, arrays | {"pending.clock": self._pending.to_arrays()["clock"]}).copied()

    @classmethod
    def from_public_snapshot(cls: type[Private], snapshot: Snapshot) -> Private:
        """Return a policy that knows what was public, and nothing else, with noise of its own.

        Parameters
        ----------
        snapshot : Snapshot
            What ``public_snapshot`` gave.

        Returns
        -------
        PrivatePolicy
            A policy of the class that this is called on, as ``recover`` would leave it.
        """
        kept = cls(cls.config_type.from_json(snapshot.header["config"]))
        kept._restore(Snapshot(snapshot.header, taken(kept).arrays | snapshot.arrays))
        kept.recover()
        return kept

    def recover(self) -> str:
        """Go on from the public part of the state alone (docs/theory.md, "Recovery after a crash").

        Returns
        -------
        str
            What was lost, for a warning.
        """
        with self._life.free(), self._life.turn():
            self._recovered_at.append(self.decisions)
            # Another life may have used the generators' next draws on other rows: never the same twice.
            self.randomness = self.randomness.fresh()
            self._pending.recover()
            self._drop_raw()
            self._clock.ticks_left = 0
            return _recovery_text(self._recovered_at[-1])


def _recovery_text(decision: int) -> str:
    return (
        f"recovered from a saved file after decision {decision}: raw sums, the open leaf or batch and all rewards that "
        "were waited for are lost, as is whatever was decided after that save; what had been released by then is kept."
    )


# What the privacy report says of a policy that cannot learn as it should; all of it follows from what is public


def bound_notices(estimate: FloatArray, theta_bound: float) -> tuple[str, ...]:
    """One when the released estimate is as long as it may be."""
    length = float(np.linalg.norm(estimate))
    if length < _AT_THE_BOUND * theta_bound:
        return ()
    return (
        f"the released estimate lies on theta_bound: it has length {length:.4g}, and {theta_bound:.4g} is admitted. "
        "After few decisions that is noise. If it stays so, the rewards ask for a longer parameter, and arms are told "
        "apart worse than they could be: make a new policy with a larger theta_bound, or, where most rewards are 0 (or "
        "most are not), state their public base_rate, which is most of that length.",
    )


def size_notices(released: int, dim: int, state_bytes: int) -> tuple[str, ...]:
    """One when every release holds many numbers, each with noise, for want of features that exclude each other."""
    if released < _MANY_NUMBERS:
        return ()
    return (
        f"with {dim} features that can all occur together each release holds {released:,} numbers, all of them with "
        f"noise; the state takes {state_bytes / 1e6:.1f} MB, and a release (one for each percent of decisions) as long "
        "as it takes to solve equations of that size. Features that exclude each other, such as values of a category "
        "or parameters per arm in a schema, cost less.",
    )


def horizon_notices(decisions: int, horizon: int | None, *, ended: bool) -> tuple[str, ...]:
    """One when more decisions were made than the horizon; ``ended`` says whether the last release has been made."""
    if horizon is None or decisions <= horizon:
        return ()
    told = f"{decisions} decisions were made, and the horizon is {horizon}: "
    if not ended:
        return (f"{told}the policy still learns; whatever depends on a horizon was planned for a shorter run.",)
    return (
        f"{told}the last release has been made. Decisions go on by the last estimate, as private as before; rewards "
        "are still taken, and teach nothing. Make a new policy with a larger horizon, or without one.",
    )
