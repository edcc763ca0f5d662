"""The paper's experiments, as data: which policies in which settings, and what was published for them.

Table 1 is quoted from the paper, *Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits*
(probit, d = 3, K = 20, T = 5,000, delta = 0.02, 10 runs).  Its two figures come without numbers: for them we give what
the public reference code produced when it was run in the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tacit.experiments.results import Row
from tacit.experiments.spec import Experiment
from tacit.experiments.tables import Table, mean_and_error, median, number
from tacit.policies.registry import POLICIES, policy_class

PAPER_TABLE = "the paper, Table 1"
LOGISTIC_CODE = "public reference code, measured, 3 runs"
PROBIT_CODE = "public reference code, measured, 5 runs"
RANDOM_CODE = "public reference code, measured, 10 runs"
_PRIVATE_GLM = "private-glm "
"""What the paper's private algorithm is called in the figures, its epsilon behind it."""


@dataclass(frozen=True)
class Figure:
    """A cumulative regret and where it is from."""

    regret: float
    source: str


def _private(regrets: Mapping[float, float], source: str) -> dict[str, Figure]:
    return {f"{_PRIVATE_GLM}{epsilon:g}": Figure(regret, source) for epsilon, regret in regrets.items()}


def _table1_column(
    glm_ucb: float, gloc: float, rs_glinucb: float, private: Mapping[float, float], uniform: float
) -> Mapping[str, Figure]:
    regrets = {"glm-ucb": glm_ucb, "gloc": gloc, "rs-glinucb": rs_glinucb}
    figures = {name: Figure(regret, PAPER_TABLE) for name, regret in regrets.items()}
    figures |= _private(private, PAPER_TABLE)
    return MappingProxyType(figures | {"random": Figure(uniform, RANDOM_CODE)})


TABLE1: Mapping[float, Mapping[str, Figure]] = MappingProxyType(
    {
        2.0: _table1_column(1400.27, 384.68, 289.69, {4: 674.17, 6: 516.58, 8: 425.53}, 2144),
        2.5: _table1_column(1943.23, 631.60, 170.10, {4: 721.26, 6: 546.97, 8: 445.27}, 2318),
        3.0: _table1_column(2323.06, 1346.59, 200.62, {4: 744.35, 6: 559.04, 8: 452.60}, 2408),
    }
)
"""By theta_norm S, then by line."""

KAPPA: Mapping[float, float] = MappingProxyType({2.0: 18.39, 2.5: 56.44, 3.0: 222.15})
"""The kappa that Table 1 states for each S; it is not quite 1 / mu'(S), which is 18.5, 57.1, 225.6."""

LOGISTIC: Mapping[str, Figure] = MappingProxyType(
    {
        "gloc": Figure(1462, LOGISTIC_CODE),
        "ecolog": Figure(549, LOGISTIC_CODE),
        "rs-glinucb": Figure(419, LOGISTIC_CODE),
        **_private({2: 1427, 4: 1054, 8: 796}, LOGISTIC_CODE),
    }
)

PROBIT: Mapping[str, Figure] = MappingProxyType(
    {
        "glm-ucb": Figure(2221, PROBIT_CODE),
        "gloc": Figure(1362, PROBIT_CODE),
        "rs-glinucb": Figure(372, PROBIT_CODE),
        **_private({2: 1160, 4: 756, 8: 554}, PROBIT_CODE),
    }
)


PAPER_DELTA = 0.02
PRIVATE = ("joint-glm", "stream-glm")
"""Policies that stand beside the paper's Private-GLM."""
_TITLES = MappingProxyType({"glm-ucb": "GLM-UCB", "gloc": "GLOC", "rs-glinucb": "RS-GLinUCB", "ecolog": "ECOLog"})


@dataclass(frozen=True)
class Line:
    """One row of a study: a policy, its epsilon, and the published line that it stands beside."""

    policy: str
    epsilon: float | None = None
    beside: str = ""

    @property
    def title(self) -> str:
        """Name of the line in tables: the policy, and its epsilon."""
        if self.epsilon is None:
            return _TITLES.get(self.policy, self.policy)
        return f"{self.policy} ε={self.epsilon:g}"


@dataclass(frozen=True)
class Study:
    """Lines in one or more settings, with the published figures of each setting."""

    name: str
    title: str
    lines: tuple[Line, ...]
    settings: Mapping[str, dict[str, Any]]
    figures: Mapping[str, Mapping[str, Figure]]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def experiment(self, line: Line, setting: str) -> Experiment:
        """Return the experiment of one line in one setting."""
        delta = None if line.epsilon is None else PAPER_DELTA
        return Experiment(line.policy, epsilon=line.epsilon, delta=delta, **self.settings[setting])

    def experiments(self) -> list[Experiment]:
        """List the experiments of all lines in all settings."""
        return [self.experiment(line, setting) for setting in self.settings for line in self.lines]

    def figure(self, line: Line, setting: str) -> Figure | None:
        """Return the published figure for a line in a setting, or None."""
        return self.figures[setting].get(line.beside or line.policy)


def _private_lines(epsilons: Sequence[float]) -> list[Line]:
    return [Line(name, eps, f"{_PRIVATE_GLM}{eps:g}") for name in PRIVATE for eps in epsilons]


def _study(name: str, title: str, lines: list[Line], settings: Any, figures: Any, notes: tuple[str, ...] = ()) -> Study:
    """Make a study of those lines whose policy is there, and name the policies that are not."""
    kept = tuple(line for line in lines if line.policy in POLICIES)
    missing = tuple(dict.fromkeys(line.policy for line in lines if line.policy not in POLICIES))
    return Study(name, title, kept, settings, figures, missing, notes)


def _setting(link: str, dim: int, horizon: int, theta_norm: float) -> dict[str, Any]:
    return {"link": link, "dim": dim, "arms": 20, "horizon": horizon, "theta_norm": theta_norm}


def table1(theta_norms: Sequence[float] = (2.0, 2.5, 3.0)) -> Study:
    """Table 1 of the paper: probit, d = 3, T = 5,000, three radii and with them three kappas."""
    names = {norm: f"S={norm:g}, κ≈{KAPPA[norm]:.4g}" for norm in theta_norms}
    lines = [Line("glm-ucb"), Line("gloc"), *_private_lines((4, 6, 8)), Line("rs-glinucb"), Line("random")]
    return _study(
        "table1",
        "Table 1: cumulative regret, probit, d = 3, K = 20, T = 5,000, delta = 0.02",
        lines,
        {names[norm]: _setting("probit", 3, 5_000, norm) for norm in theta_norms},
        {names[norm]: TABLE1[norm] for norm in theta_norms},
        ("Published: the paper, Table 1; random: public reference code, measured.",),
    )


def logistic() -> Study:
    """The paper's logistic figure."""
    shuffled = [Line("shuffle-glm", epsilon) for epsilon in (2, 4, 8)]  # the paper has no experiment with Algorithm 1
    lines = [*_private_lines((2, 4, 8)), *shuffled, Line("rs-glinucb"), Line("ecolog"), Line("gloc")]
    return _study(
        "logistic",
        "Logistic figure: cumulative regret, d = 5, K = 20, S = 3.5, T = 15,000, delta = 0.02",
        lines,
        {"S = 3.5": _setting("logistic", 5, 15_000, 3.5)},
        {"S = 3.5": LOGISTIC},
        (f"The paper prints no numbers for this figure; beside ours: {LOGISTIC_CODE}.",),
    )


def probit() -> Study:
    """The paper's probit figure."""
    lines = [*_private_lines((2, 4, 8)), Line("rs-glinucb"), Line("glm-ucb"), Line("gloc")]
    return _study(
        "probit",
        "Probit figure: cumulative regret, d = 5, K = 20, S = 3, T = 5,000, delta = 0.02",
        lines,
        {"S = 3": _setting("probit", 5, 5_000, 3.0)},
        {"S = 3": PROBIT},
        (f"The paper prints no numbers for this figure; beside ours: {PROBIT_CODE}.",),
    )


STUDIES: Mapping[str, Callable[[], Study]] = MappingProxyType(
    {"table1": table1, "logistic": logistic, "probit": probit}
)


def demo(theta_norm: float = 2.5) -> Study:
    """A column of Table 1 with more epsilons: what does privacy cost?"""
    name = f"S = {theta_norm:g}"
    lines = [*_private_lines((1, 2, 4, 8)), Line("rs-glinucb"), Line("random")]
    return _study(
        "demo",
        f"Cumulative regret after 5,000 rounds: probit, d = 3, K = 20, S = {theta_norm:g}, delta = 0.02",
        lines,
        {name: _setting("probit", 3, 5_000, theta_norm)},
        {name: TABLE1[theta_norm]},
        ("Published: the paper, Table 1; random: public reference code, measured.",),
    )


def annotated(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Add study, line and published figure to rows, whose settings are recognised by their fields."""
    found: list[Row] = []
    for setting in study.settings:
        for line in study.lines:
            row = _find(study.experiment(line, setting), rows)
            if row is not None:
                figure = study.figure(line, setting)
                found.append(
                    row
                    | {"study": study.name, "setting": setting, "line": line.title}
                    | {"published": figure and figure.regret, "published_source": figure and figure.source}
                )
    return found


def _find(experiment: Experiment, rows: Sequence[Row]) -> Row | None:
    wanted = {key: getattr(experiment, key) for key in ("policy", "epsilon", "link", "dim", "horizon", "theta_norm")}
    return next((row for row in rows if all(row[key] == value for key, value in wanted.items())), None)


def table(study: Study, rows: Sequence[Row]) -> Table:
    """Tabulate ours beside the published figures, one line for each policy and epsilon."""
    cells = [(line.title, *_cells(study, line, rows)) for line in study.lines]
    skipped = (f"Not in this build, left out: {', '.join(study.skipped)}.",) if study.skipped else ()
    notes = (*study.notes, *_guarantees(study), *skipped)
    columns = ("policy", *_columns(study))
    narrow = [group for start in range(1, len(columns), 3) for group in ((start,), (start + 1, start + 2))]
    return Table(study.title, columns, tuple(cells), notes=notes, narrow=((0,), *narrow))


def _columns(study: Study) -> list[str]:
    """Return the headings of three narrow columns for each setting."""
    if len(study.settings) == 1:
        return ["published", "ours", "median"]
    halves = [setting.partition(", ") for setting in study.settings]
    return [heading for first, _, second in halves for heading in (f"{first}\npaper", f"{second}\nours", "median")]


def _cells(study: Study, line: Line, rows: Sequence[Row]) -> list[str]:
    cells = []
    for setting in study.settings:
        figure, row = study.figure(line, setting), _find(study.experiment(line, setting), rows)
        ours = (mean_and_error(row), median(row)) if row else ("", "")
        cells += [number(figure.regret) if figure else "", *ours]
    return cells


def _guarantees(study: Study) -> tuple[str, ...]:
    if not any(line.epsilon is not None for line in study.lines):
        return ()
    models = {line.policy: policy_class(line.policy).guarantee for line in study.lines if line.epsilon is not None}
    told = "; ".join(f"{policy}: {model} DP" for policy, model in models.items())
    return (
        "Joint-private policies stand beside the paper's Private-GLM at the same epsilon.",
        f"Ours: mean, standard error and median; {told}; replacement adjacency, exact ledger.",
    )


def published_private(study: Study) -> dict[float, float]:
    """Published regret of the paper's private algorithm by epsilon, in the study's first setting."""
    figures = next(iter(study.figures.values()))
    return {
        float(key.removeprefix(_PRIVATE_GLM)): figure.regret
        for key, figure in figures.items()
        if key.startswith(_PRIVATE_GLM)
    }
