"""The audit itself: what is to be tried, and claim against evidence as rows.

A task is small enough to be one unit of progress and of parallel work, and a value, so that another process can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tacit.audit.attacks import attack_by_probes, attack_policy, has_probes
from tacit.audit.cases import DRIVES, Case, Replays, audited_policies, case_for, replay_many
from tacit.audit.checks import CHECKS
from tacit.audit.joint_draws import joint_findings
from tacit.audit.mechanisms import MECHANISMS
from tacit.audit.mutants import MUTANTS
from tacit.audit.replay import TOLERANCE
from tacit.audit.statistics import CLAIM_SLACK, Samples, clopper_pearson_bound, gaussian_bound, noise_scale_bounds
from tacit.errors import InvalidInput
from tacit.extensions import Extension, load_again
from tacit.privacy.gaussian import epsilon_from, mu_from

HOLDS, REFUTED, CAUGHT, SURVIVED, LEAK = "holds", "refuted", "caught", "survived", "leak shown"
FAILURES: Final = (REFUTED, SURVIVED)
FINDINGS: Final = 50
"""A bound at 95% exceeds a true claim once in twenty; a claim is refuted at a level that holds for as many bounds."""
PAPER: Final = "joint-glm, profile paper"


@dataclass(frozen=True)
class Effort:
    """Runs per world of mechanisms and of policies, and pairs of neighbours per policy."""

    mechanism: int
    policy: int
    pairs: int
    driven: int = 6
    """Pairs for each of the worlds that drive a policy to its bounds."""


FULL: Final = Effort(5_000, 1_000, 1_000, 24)
QUICK: Final = Effort(1_000, 40, 48, 3)


@dataclass(frozen=True)
class Evidence:
    """One row: what is claimed, what was found, how, in how many runs."""

    name: str
    claim: float | None
    """Epsilon as claimed; None where the claim is not a number."""
    lower_bound: float | None
    """Epsilon that the evidence proves (replay: that the worst measured shift amounts to)."""
    method: str
    runs: int
    verdict: str
    detail: str = ""
    samples: Samples | None = field(default=None, repr=False, compare=False)

    @property
    def failed(self) -> bool:
        """Whether a claim is refuted or a mutant survived."""
        return self.verdict in FAILURES

    def row(self) -> dict[str, Any]:
        """For JSON."""
        names = ("name", "claim", "lower_bound", "method", "runs", "verdict", "detail")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Task:
    """One thing to try."""

    kind: str
    name: str
    runs: int
    epsilon: float = 1.0
    delta: float = 1e-5
    confidence: float = 0.95
    seed: int = 0
    modules: tuple[Extension, ...] = ()
    """Modules that registered what is to be tried; a process that does the task imports them first."""


def names() -> list[str]:
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
) -> list[Task]:
    """All tasks about these policies and mechanisms."""
    tasks: list[Task] = []
    for name in wanted:
        for epsilon in epsilons:
            terms = (epsilon, delta, confidence, seed, modules)
            if name in MECHANISMS:
                tasks.append(Task("mechanism", name, effort.mechanism, *terms))
                continue
            if name not in names():
                raise InvalidInput(f"name must be one of {', '.join(names())}, not {name!r}")
            tasks.append(Task("replay", name, max(1, effort.pairs // len(epsilons)), *terms))
            if epsilon == epsilons[0] and name in DRIVES:  # these bring their own epsilon
                tasks.append(Task("driven", name, effort.driven, *terms))
            tasks.append(Task("policy", name, effort.policy, *terms))
            if has_probes(name):
                tasks.append(Task("probes", name, effort.policy, *terms))
    return tasks


def paper_tasks(delta: float, seed: int = 0) -> list[Task]:
    """The leak that ``profile="paper"`` is kept for."""
    return [Task("paper", PAPER, 24, 4.0, delta, seed=seed)]


def mutant_tasks() -> list[Task]:
    """Every check without a fault, and every fault."""
    return [Task("check", name, 1) for name in CHECKS] + [Task("mutant", mutant.name, 1) for mutant in MUTANTS]


def perform(task: Task) -> list[Evidence]:
    """Do a task."""
    load_again(task.modules)
    return _PERFORMERS[task.kind](task)


def perform_all(tasks: Sequence[Task], jobs: int = 1) -> Iterator[list[Evidence]]:
    """Do all tasks, in order, several at a time."""
    if jobs == 1:
        yield from map(perform, tasks)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(perform)(task) for task in tasks)


def _judged(task: Task, samples: Samples, threshold: float | None, detail: str = "") -> list[Evidence]:
    """Both bounds on one set of samples, and the verdict: the bounds at a confidence that fits many findings."""
    strict = 1.0 - (1.0 - task.confidence) / FINDINGS
    found = []
    for bound, sure in (
        tuple(gaussian_bound(samples, task.delta, level, threshold) for level in (task.confidence, strict)),
        tuple(clopper_pearson_bound(samples, task.delta, level) for level in (task.confidence, strict)),
    ):
        verdict = REFUTED if sure.epsilon > task.epsilon * (1.0 + CLAIM_SLACK) else HOLDS
        terms = (task.name, task.epsilon, bound.epsilon, bound.method, task.runs, verdict)
        found.append(Evidence(*terms, detail=detail, samples=samples))
    return found


def _mechanism(task: Task) -> list[Evidence]:
    samples = MECHANISMS[task.name](task.epsilon, task.delta, task.runs, np.random.default_rng(task.seed))
    return _judged(task, samples, 0.0)


def _policy(task: Task) -> list[Evidence]:
    return _judged(task, attack_policy(case_for(task.name), task.epsilon, task.delta, task.runs, task.seed), 0.0)


def _probes(task: Task) -> list[Evidence]:
    samples = attack_by_probes(case_for(task.name), task.epsilon, task.delta, task.runs, task.seed)
    return [
        Evidence(e.name, e.claim, e.lower_bound, f"arms of probes, {e.method}", e.runs, e.verdict, e.detail, e.samples)
        for e in _judged(task, samples, None)
    ]


def _replay(task: Task) -> list[Evidence]:
    case = case_for(task.name)
    result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
    found = [_replayed(task, case, result, "replay")]
    if any(result.draws):
        found += [_noise(task, result), _joint(task, result)]
    return found


def _replayed(task: Task, case: Case, result: Replays, method: str) -> Evidence:
    """Shift over charge, for each kind of charge; neither any kind nor all together may exceed what was charged."""
    wrong = bool(result.divergences) or not result.worst <= 1.0 + TOLERANCE
    kinds = ", ".join(f"{kind} {ratio:.3f}" for kind, ratio in sorted(result.kinds.items()))
    detail = f"shift / charge {result.worst:.4f} ({result.adversary.replace('_', ' ')}): {kinds}"
    detail += f"; {case.note}" if case.note and min(result.kinds.values(), default=0.0) < 0.95 else ""
    if result.divergences:
        detail = f"{len(result.divergences)} pairs diverge: {result.divergences[0]}"
    claim, delta = (float(case.settings[0].get(key, getattr(task, key))) for key in ("epsilon", "delta"))
    bound = epsilon_from(result.mu, delta)
    detail += f"; at delta {delta:g}" if delta != task.delta else ""
    verdict = REFUTED if wrong else HOLDS
    return Evidence(task.name, claim, bound, method, result.pairs, verdict, detail)


def _driven(task: Task) -> list[Evidence]:
    """Each kind of charge where it is attained, or as nearly as an attack can."""
    found = []
    for case in DRIVES.get(task.name, ()):
        result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
        found.append(_replayed(task, case, result, "replay, driven"))
        if any(result.draws):
            found.append(_joint(task, result))
    return found


def _joint(task: Task, result: Replays) -> Evidence:
    """All draws together: independent across coordinates, leaves, releases, sources and runs."""
    wrong = joint_findings(result.draws, steps=result.steps)
    detail = wrong[0] if wrong else "independent across coordinates, leaves, calls, sources and runs"
    runs = sum(int(np.atleast_2d(noise).shape[0]) for run in result.draws for _, noise in run)
    return Evidence(task.name, task.epsilon, None, "joint draws", runs, REFUTED if wrong else HOLDS, detail)


def _noise(task: Task, result: Replays) -> Evidence:
    """If every shift can be as large as charged, noise of this size proves this epsilon."""
    draws = np.concatenate([np.ravel(noise) for run in result.draws for _, noise in run])
    low, high = noise_scale_bounds(draws)
    bound = epsilon_from(mu_from(task.epsilon, task.delta) / high, task.delta)
    detail = f"drawn / charged between {low:.4f} and {high:.4f}"
    verdict = HOLDS if high >= 1.0 else REFUTED
    return Evidence(task.name, task.epsilon, bound, "noise scale", draws.size, verdict, detail)


def _paper(task: Task) -> list[Evidence]:
    case = Case("joint-glm", ({"horizon": 40, "profile": "paper"},), groups=False)
    result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
    shown = [text for text in result.divergences if "one world" in text]  # at a time of its own
    detail = f"{len(shown)} of {result.pairs} pairs: {shown[0]}" if shown else "no pair shows the refresh leak"
    return [Evidence(task.name, None, None, "replay", result.pairs, LEAK if shown else SURVIVED, detail)]


def _check(task: Task) -> list[Evidence]:
    found = CHECKS[task.name]()
    return [Evidence("no mutant", None, None, task.name, 1, REFUTED if found else HOLDS, "; ".join(found[:1]))]


def _mutant(task: Task) -> list[Evidence]:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == task.name)
    found = mutant.caught()
    verdict = CAUGHT if found else SURVIVED
    return [Evidence(mutant.name, None, None, mutant.check, 1, verdict, "; ".join(found[:1]) or mutant.fault)]


_PERFORMERS: Final[dict[str, Callable[[Task], list[Evidence]]]] = {
    "mechanism": _mechanism,
    "policy": _policy,
    "probes": _probes,
    "replay": _replay,
    "driven": _driven,
    "paper": _paper,
    "check": _check,
    "mutant": _mutant,
}
