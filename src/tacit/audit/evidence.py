"""Claim against evidence: performs tasks, gives each finding a verdict, and draws what attackers saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit.audit.attacks import Replays, attack_by_probes, attack_policy, replay_many
from tacit.audit.cases import DRIVES, Case, case_for
from tacit.audit.contracts import Broken, Contract, Subject, contracts_for
from tacit.audit.joint_draws import joint_findings
from tacit.audit.mechanisms import MECHANISMS
from tacit.audit.rehearsal import NOTHING, audited_policy, life_of, private_class, usual_link
from tacit.audit.replay import TOLERANCE, PairOutcome
from tacit.audit.service_cases import SERVICE_CASES, TIGHT, random_script
from tacit.audit.services import replay_service
from tacit.audit.statistics import CLAIM_SLACK, Samples, clopper_pearson_bound, gaussian_bound, noise_scale_bounds
from tacit.audit.tasks import AuditTask
from tacit.extensions import load_again
from tacit.extras import named_extras
from tacit.privacy.gaussian import epsilon_from, mu_from

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOLDS, REFUTED, LEAK, NO_LEAK = "holds", "refuted", "leak shown", "leak not shown"
NOT_EXERCISED: Final = "not exercised"
"""The verdict where nothing was measured that could have refuted the claim."""
FAILURES: Final = (REFUTED, NO_LEAK, NOT_EXERCISED)
FINDINGS: Final = 50
"""A bound at 95% exceeds a true claim once in twenty; a claim is refuted at a level that holds for as many bounds."""
CONTRACT_SETTING: Final = {"dim": 3, "horizon": 400, "theta_bound": 2.0}
"""Options of a policy whose steps are held to their contracts."""
_BLUE, _RED = "#0072B2", "#D55E00"
_COLUMNS: Final = 2
_FEW_DRAWS: Final = "no noise was drawn that a release was made with"


@dataclass(frozen=True)
class Evidence:
    """One finding: the claim, the evidence, the method and the number of runs."""

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
        """Whether a claim is refuted or was not exercised, or the leak of the paper's profile went unseen."""
        return self.verdict in FAILURES

    def row(self) -> dict[str, Any]:
        """The finding as a dictionary for JSON."""
        names = ("name", "claim", "lower_bound", "method", "runs", "verdict", "detail")
        return {name: getattr(self, name) for name in names}


def perform(task: AuditTask) -> list[Evidence]:
    """Perform a task and return its findings."""
    load_again(task.modules)
    return _PERFORMERS[task.kind](task)


def perform_all(tasks: Sequence[AuditTask], jobs: int = 1) -> Iterator[list[Evidence]]:
    """Perform all tasks, ``jobs`` at a time; yields their findings in order."""
    if jobs == 1:
        yield from map(perform, tasks)
        return
    with named_extras():
        from joblib import Parallel, delayed

    yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(perform)(task) for task in tasks)


def _judged(task: AuditTask, samples: Samples, threshold: float | None, detail: str = "") -> list[Evidence]:
    """Both bounds on one set of samples, and the verdict: the bounds at a confidence that fits many findings."""
    strict = 1.0 - (1.0 - task.confidence) / FINDINGS
    if samples.runs == 0:
        methods = ("Gaussian DP", "Clopper-Pearson")
        return [Evidence(task.name, task.epsilon, None, method, 0, NOT_EXERCISED, NOTHING) for method in methods]
    varied = np.ptp(np.concatenate([samples.first, samples.second])) > 0.0
    found = []
    for bound, sure in (
        tuple(gaussian_bound(samples, task.delta, level, threshold) for level in (task.confidence, strict)),
        tuple(clopper_pearson_bound(samples, task.delta, level) for level in (task.confidence, strict)),
    ):
        verdict = REFUTED if sure.epsilon > task.epsilon * (1.0 + CLAIM_SLACK) else HOLDS if varied else NOT_EXERCISED
        terms = (task.name, task.epsilon, bound.epsilon, bound.method, samples.runs, verdict)
        seen = detail if varied else "the attacker saw the same in all runs of both worlds"
        found.append(Evidence(*terms, detail=seen, samples=samples))
    return found


def _mechanism(task: AuditTask) -> list[Evidence]:
    samples = MECHANISMS[task.name](task.epsilon, task.delta, task.runs, np.random.default_rng(task.seed))
    return _judged(task, samples, 0.0)


def _case(task: AuditTask) -> Case:
    return case_for(task.name, task.options)


def _fewer_runs(task: AuditTask, runs: int) -> str:
    """A remark where lives were so long that fewer runs were made than asked for."""
    return f"{runs} in place of {task.runs} runs, since lives are long" if 0 < runs < task.runs else ""


def _policy(task: AuditTask) -> list[Evidence]:
    samples = attack_policy(_case(task), task.epsilon, task.delta, task.runs, task.seed, task.options)
    return _judged(task, samples, 0.0, _fewer_runs(task, samples.runs))


def _probes(task: AuditTask) -> list[Evidence]:
    samples = attack_by_probes(_case(task), task.epsilon, task.delta, task.runs, task.seed, task.options)
    return [replace(e, method=f"arms of probes, {e.method}") for e in _judged(task, samples, None)]


def _contracts(task: AuditTask) -> list[Evidence]:
    """The contracts of a policy's steps, before its first release and after several."""
    kind, case = private_class(task.name), _case(task)
    dim = {"dim": 2} if kind.guarantee == "shuffle" else {}
    terms = {"link": usual_link(task.name), "epsilon": task.epsilon, "delta": task.delta, "seed": 3}
    terms = {**CONTRACT_SETTING, **dim, **terms, **task.options}
    life = life_of(task.name, terms, fixed=case.own_horizon)
    subject = Subject(partial(audited_policy, task.name, **life.options), life.releases)
    return [_contracted(task, subject, title, contract) for title, contract in contracts_for(subject.make()).items()]


def _contracted(task: AuditTask, subject: Subject, title: str, contract: Contract) -> Evidence:
    try:
        looked, verdict, detail = contract(subject), HOLDS, f"releases after {_listed(subject.releases)} decisions"
    except Broken as broken:
        looked, verdict, detail = 1, REFUTED, str(broken)
    if verdict == HOLDS and not subject.releases:
        verdict, detail = NOT_EXERCISED, NOTHING
    return Evidence(task.name, None, None, f"contract: {title}", looked, verdict, detail)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)


def _replay(task: AuditTask) -> list[Evidence]:
    case = _case(task)
    result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
    found = [_replayed(task, case, result, "replay")]
    if private_class(task.name).guarantee != "shuffle":  # whose noise are bits
        found += [_noise(task, result), _joint(task, result)]
    return found


def _replayed(task: AuditTask, case: Case, result: Replays, method: str) -> Evidence:
    """Shift over charge, for each kind of charge; neither any kind nor all together may exceed what was charged."""
    wrong = bool(result.divergences) or not result.worst <= 1.0 + TOLERANCE
    kinds = ", ".join(f"{kind} {ratio:.3f}" for kind, ratio in sorted(result.kinds.items()))
    detail = f"shift / charge {result.worst:.4f} ({result.adversary.replace('_', ' ')}): {kinds}"
    detail += f"; {case.note}" if case.note and min(result.kinds.values(), default=0.0) < 0.95 else ""
    verdict = REFUTED if wrong else HOLDS
    if result.divergences:
        detail = f"{len(result.divergences)} pairs diverge: {result.divergences[0]}"
    elif not result.mu > 0.0:
        verdict, detail = NOT_EXERCISED, NOTHING
        if result.pairs:
            detail = "no release of any pair differed between the worlds"
    if 0 < result.pairs < task.runs:
        detail += f"; {result.pairs} in place of {task.runs} pairs, since lives have {result.users:,} decisions"
    claim, delta = (float(case.settings[0].get(key, getattr(task, key))) for key in ("epsilon", "delta"))
    bound = epsilon_from(result.mu, delta) if result.mu > 0.0 else 0.0
    detail += f"; at delta {delta:g}" if delta != task.delta else ""
    return Evidence(task.name, claim, bound, method, result.pairs, verdict, detail)


def _driven(task: AuditTask) -> list[Evidence]:
    """Each kind of charge where it is attained, or as nearly as an attack can."""
    found = []
    for case in DRIVES.get(task.name, ()):
        result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
        found.append(_replayed(task, case, result, "replay, driven"))
        if private_class(task.name).guarantee != "shuffle":
            found.append(_joint(task, result))
    return found


def _joint(task: AuditTask, result: Replays) -> Evidence:
    """All draws together: independent across coordinates, leaves, releases, sources and runs."""
    runs = sum(int(np.atleast_2d(noise).shape[0]) for run in result.draws for _, noise in run)
    if runs < 2:
        return Evidence(task.name, task.epsilon, None, "joint draws", runs, NOT_EXERCISED, _FEW_DRAWS)
    wrong = joint_findings(result.draws, steps=result.steps)
    detail = wrong[0] if wrong else "independent across coordinates, leaves, calls, sources and runs"
    return Evidence(task.name, task.epsilon, None, "joint draws", runs, REFUTED if wrong else HOLDS, detail)


def _noise(task: AuditTask, result: Replays) -> Evidence:
    """If every shift can be as large as charged, noise of this size proves this epsilon."""
    draws = np.concatenate([np.zeros(0), *(np.ravel(noise) for run in result.draws for _, noise in run)])
    if draws.size < 2:
        return Evidence(task.name, task.epsilon, None, "noise scale", draws.size, NOT_EXERCISED, _FEW_DRAWS)
    low, high = noise_scale_bounds(draws)
    bound = epsilon_from(mu_from(task.epsilon, task.delta) / high, task.delta)
    detail = f"drawn / charged between {low:.4f} and {high:.4f}"
    verdict = HOLDS if high >= 1.0 else REFUTED
    return Evidence(task.name, task.epsilon, bound, "noise scale", draws.size, verdict, detail)


def _paper(task: AuditTask) -> list[Evidence]:
    case = Case("joint-glm", ({"horizon": 40, "profile": "paper"},), groups=False)
    result = replay_many(case, task.runs, task.epsilon, task.delta, task.seed)
    shown = [
        text for text in result.divergences if "one world" in text
    ]  # a release that the other world does not have then
    detail = f"{len(shown)} of {result.pairs} pairs: {shown[0]}" if shown else "no pair shows the refresh leak"
    return [Evidence(task.name, None, None, "replay", result.pairs, LEAK if shown else NO_LEAK, detail)]


def _service(task: AuditTask) -> list[Evidence]:
    """A named pair of neighbours, played through the service."""
    case = SERVICE_CASES[task.name]
    script = case.script()
    outcome = replay_service(resolve_name(task.service), script)
    detail = f"shift / charge {outcome.worst:.4f}: {case.about}"
    verdict = _verdict([outcome])
    if case.still:
        verdict = REFUTED if outcome.mu > 0.0 or verdict == REFUTED else HOLDS if outcome.draws else NOT_EXERCISED
    elif case.tight and verdict == HOLDS and outcome.worst < TIGHT:
        verdict, detail = NOT_EXERCISED, f"{detail}; the charge is attained there, and {TIGHT:g} of it was to be shown"
    if outcome.divergences:
        detail = outcome.divergences[0]
    epsilon, delta = float(script.body["epsilon"]), float(script.body["delta"])
    bound = epsilon_from(outcome.mu, delta) if outcome.mu > 0.0 else 0.0
    return [Evidence(task.place, epsilon, bound, f"replay: {task.name}", 1, verdict, f"{detail}; at delta {delta:g}")]


def _service_pairs(task: AuditTask) -> list[Evidence]:
    """Random pairs of neighbours, played through the service."""
    start = int(task.name)
    scripts = [random_script(index, task.seed) for index in range(start, start + task.runs)]
    outcomes = [replay_service(resolve_name(task.service), script) for script in scripts]
    worst = max(outcome.worst for outcome in outcomes)
    moved = sum(outcome.mu > 0.0 for outcome in outcomes)
    detail = f"largest shift / charge {worst:.4f}; {moved} pairs differ in what is released"
    diverged = [outcome.divergences[0] for outcome in outcomes if outcome.divergences]
    if diverged:
        detail = f"{len(diverged)} pairs diverge: {diverged[0]}"
    return [Evidence(task.place, None, None, "replay: random pairs", task.runs, _verdict(outcomes), detail)]


def _verdict(outcomes: Sequence[PairOutcome]) -> str:
    """Refuted by any pair that is not sound; not exercised where no pair has shown a shift."""
    if not all(outcome.sound for outcome in outcomes):
        return REFUTED
    return HOLDS if any(outcome.mu > 0.0 for outcome in outcomes) else NOT_EXERCISED


_PERFORMERS: Final[dict[str, Callable[[AuditTask], list[Evidence]]]] = {
    "contracts": _contracts,
    "mechanism": _mechanism,
    "policy": _policy,
    "probes": _probes,
    "replay": _replay,
    "driven": _driven,
    "paper": _paper,
    "service": _service,
    "service pairs": _service_pairs,
}


def distributions(found: Sequence[Evidence], path: Path) -> None:
    """Save a figure with a panel for each set of samples: histograms of both worlds, claim and bounds in the title."""
    groups: dict[int, list[Evidence]] = {}
    for evidence in found:
        if evidence.samples is not None:
            groups.setdefault(id(evidence.samples), []).append(evidence)
    if not groups:
        return
    lines = -(-len(groups) // _COLUMNS)
    columns = min(_COLUMNS, len(groups))
    with named_extras():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0 * columns, 3.4 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for panel, group in zip(axes.flat, groups.values(), strict=False):
        _panel(panel, group)
    for panel in list(axes.flat)[len(groups) :]:
        panel.set_visible(False)
    figure.savefig(path, dpi=130)


def _panel(axes: Axes, group: Sequence[Evidence]) -> None:
    samples = group[0].samples
    assert samples is not None
    both = np.concatenate([samples.first, samples.second])
    low, high = np.quantile(both, [0.001, 0.999])
    bins = np.linspace(low, high + (1.0 if high == low else 0.0), min(61, 5 + int(np.sqrt(both.size))))
    for values, colour, label in ((samples.first, _BLUE, "row"), (samples.second, _RED, "replaced row")):
        style = {"histtype": "stepfilled", "alpha": 0.35, "color": colour, "label": label}
        axes.hist(values, bins=bins.tolist(), density=True, **style)  # type: ignore[arg-type]
        axes.axvline(float(np.mean(values)), color=colour, linewidth=1.0)
    bounds = ", ".join(f"{e.method} {e.lower_bound:.2f}" for e in group if e.lower_bound is not None)
    axes.set_title(f"{group[0].name}, epsilon {group[0].claim:g}: {group[0].verdict}\n{bounds}", fontsize=9)
    axes.set_xlabel("the attacker's statistic", fontsize=8)
    axes.set_yticks([])
    axes.legend(fontsize=8, frameon=False)
