"""Policies of the local model: each user's device sends one report with its reward, and adds noise of its own to it."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy.report import Model
from tacit.typing import FloatArray


class Report(NamedTuple):
    """What one device sends before noise: its name in the ledger, how many numbers, and how large they can be."""

    name: str
    size: int
    norm: float
    """Bound on the Euclidean norm."""
    distance: float
    """Bound on the distance of two users' reports."""


class LocalPolicy(PrivatePolicy):
    """A policy whose state has the field ``noise``: what the devices that decide next have drawn, one after the other.

    A memo has the features of the arm and behind them the noise of the user's device, which a reward completes to a
    report.  The ledger holds one report per user: reports of different users are about disjoint rows.
    """

    guarantee: ClassVar[Model] = "local"
    _noise_for_each = True
    state: Any

    @property
    @abstractmethod
    def _report(self) -> Report:
        """What a device sends, from public quantities."""

    @property
    def _memo_size(self) -> int:
        return self.setting.dim + self._report.size

    @property
    def _secret_memo(self) -> slice:
        return slice(self.setting.dim, self._memo_size)  # the noise of the device

    @property
    def _noise_size(self) -> int:
        return self._report.size

    @property
    def _noise_scale(self) -> float:
        return self._planned_noise_sd

    @cached_property
    def _planned_noise_sd(self) -> float:
        report = self._report
        return self.randomness.ticks.scale_for(report.distance, self._total_mu, size=report.size)

    def _charge_reports(self) -> None:
        """Charge the ledger for the reports of one user."""
        (name, size, norm, distance), source = self._report, self.randomness.ticks
        self.ledger.charge(source.event(
            name, distance, self._planned_noise_sd, size=size, draws=size * self.setting.budget.rounds_per_user,
            moving_sensitivity=norm, note="one report per user: reports of different users concern disjoint rows",
        ))  # fmt: skip

    def _close(self, noise: FloatArray, users: int) -> bool:
        """Hand the noise to the devices that decide next: nothing is released before a reward comes."""
        self._state = self._state._replace(noise=noise.copy())
        return True

    def _drop_raw(self) -> None:
        self.state.noise[:] = 0.0
