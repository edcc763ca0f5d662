"""Checks by the contracts of a policy's steps, where its first release comes late."""

from __future__ import annotations

from functools import partial
from typing import Final

from tacit.audit import contracts
from tests.mutants.checks.noise import STREAMS, small_policy

LATE: Final = 1_000
"""Decisions before the first release that holds a row."""


def choose_reads_no_secrets() -> list[str]:
    """``choose`` of streams whose rows wait for a thousand decisions reads nothing secret, before releases and after.

    Between such releases, which come when most audits are over, an arm is the only place where raw sums would show.
    """
    found = []
    for name in STREAMS:
        make = partial(small_policy, 5, name, horizon=2 * LATE, reward_age=LATE)
        subject = contracts.Subject.rehearsed(make, longest=2 * LATE)
        if not subject.releases or subject.releases[0] < LATE:
            found.append(f"{name}: releases come after {subject.releases} decisions, and not after {LATE}")
        try:
            contracts.choose_reads_no_secrets(subject)
        except contracts.Broken as broken:
            found.append(f"{name}: {broken}")
    return found
