"""What an audit tries, as tasks: each small enough to be one unit of progress and of parallel work.

A task is a value, so that another process can do it (`tacit.audit.evidence.perform`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tacit.audit.attacks import has_probes
from tacit.audit.cases import DRIVES, case_for
from tacit.audit.mechanisms import MECHANISMS
from tacit.audit.rehearsal import audited_policies, private_class
from tacit.audit.service_cases import SERVICE_CASES
from tacit.audit.statistics import accounting
from tacit.errors import InvalidInput
from tacit.extensions import Extension

PAPER: Final = "joint-glm, profile paper"
SERVICE: Final = "service"
_PAIRS_AT_ONCE: Final = 20
"""Random pairs that are played through a service in one task."""


@dataclass(frozen=True)
class Effort:
    """Runs per world of mechanisms and of policies, and pairs of neighbours per policy."""

    mechanism: int
    policy: int
    pairs: int
    driven: int = 6
    """Pairs for each of the worlds that drive a policy to its bounds."""
    service: int = 20
    """Random pairs that are played through a service."""


FULL: Final = Effort(5_000, 1_000, 1_000, 24, 200)
QUICK: Final = Effort(1_000, 40, 48, 3, 20)


@dataclass(frozen=True)
class AuditTask:
    """One attack, replay or contract of a policy, a mechanism or a service."""

    kind: str
    name: str
    runs: int
    epsilon: float = 1.0
    delta: float = 1e-5
    confidence: float = 0.95
    seed: int = 0
    modules: tuple[Extension, ...] = ()
    """Modules that registered the policy; a process that performs the task imports them first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the policy, its horizon among them, in place of those of its settings."""
    place: str = ""
    """What the service is called in the findings."""
    service: str = ""
    """The service to be audited, as ``module:name`` of what opens one (`tacit.audit.services.OpenService`)."""


def auditable() -> list[str]:
    """Everything that can be audited by name."""
    return [*audited_policies(), *MECHANISMS]


def tasks_for(
    wanted: Sequence[str],
    *,
    epsilons: Sequence[float],
    delta: float,
    confidence: float = 0.95,
    effort: Effort = FULL,
    seed: int = 0,
    modules: tuple[Extension, ...] = (),
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[AuditTask]:
    """All tasks about these policies and mechanisms.

    ``options`` are those of policies, by their names.  Worlds that drive a policy to its bounds have settings of their
    own, and are left out for policies that have options.
    """
    tasks: list[AuditTask] = []
    for name in wanted:
        own = options.get(name, {})
        if own:
            case_for(name, own)  # which refuses options that do not go together, before anything is tried
        for epsilon in epsilons:
            terms = (epsilon, delta, confidence, seed, modules, own)
            if name in MECHANISMS:
                tasks.append(AuditTask("mechanism", name, effort.mechanism, *terms))
                continue
            if name not in auditable():
                raise InvalidInput(f"name must be one of {', '.join(auditable())}, not {name!r}")
            if private_class(name).guarantee == "shuffle":
                accounting()  # which replays of shuffled sums need: an error now, and not after minutes
            if epsilon == epsilons[0]:
                tasks.append(AuditTask("contracts", name, 1, *terms))
            tasks.append(AuditTask("replay", name, max(1, effort.pairs // len(epsilons)), *terms))
            if epsilon == epsilons[0] and name in DRIVES and not own:  # these bring their own epsilon
                tasks.append(AuditTask("driven", name, effort.driven, *terms))
            tasks.append(AuditTask("policy", name, effort.policy, *terms))
            if has_probes(name):
                tasks.append(AuditTask("probes", name, effort.policy, *terms))
    return tasks


def paper_tasks(delta: float, seed: int = 0) -> list[AuditTask]:
    """Tasks that show the leak which ``profile="paper"`` is kept for."""
    return [AuditTask("paper", PAPER, 24, 4.0, delta, seed=seed)]


def service_tasks(place: str, service: str, effort: Effort = FULL, seed: int = 0) -> list[AuditTask]:
    """Tasks that play neighbours through a service: all named ones, and random ones."""
    terms: dict[str, Any] = {"seed": seed, "place": place, "service": service}
    named = [AuditTask("service", name, 1, **terms) for name in SERVICE_CASES]
    starts = range(0, effort.service, _PAIRS_AT_ONCE)
    sizes = [(start, min(_PAIRS_AT_ONCE, effort.service - start)) for start in starts]
    return named + [AuditTask("service pairs", str(start), size, **terms) for start, size in sizes]
