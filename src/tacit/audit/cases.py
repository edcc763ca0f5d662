"""Which policies are audited, in which settings, with which neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tacit.audit.rehearsal import audited_policy, private_class
from tacit.audit.worlds import (
    ABSENT,
    ADVERSARIES,
    Adversary,
    exploring_rows,
    largest_contribution,
    largest_gradient,
    late_rows,
    moving_rows,
    opposite_rows,
    orthogonal_rows,
)
from tacit.errors import InvalidInput
from tacit.policies.continual_policy import ContinualPolicy


@dataclass(frozen=True)
class Case:
    """A policy, the settings in which it is replayed in turn, and why its measured shift stays below the charge."""

    policy: str
    settings: Sequence[Mapping[str, Any]]
    users: int = 40
    groups: bool = True
    """Whether several decisions may share a tick."""
    absent: bool = True
    """Whether the guarantee covers rewards that come late or never."""
    adversaries: Sequence[Adversary] = ()
    """Functions that choose the two rows, taken in turn; all of them by default."""
    driven: bool = False
    """Whether the other users push the policy to where its bounds are attained (`tacit.audit.worlds`)."""
    user: int | None = None
    """The user whose row is replaced; drawn at random by default."""
    rehearsed: bool = False
    """Whether a rehearsal says how long lives are, and which horizon that takes (`tacit.audit.rehearsal`)."""
    own_horizon: bool = False
    """Whether the horizon was asked for, so that a rehearsal must leave it as it is."""
    note: str = ""

    def turn(self, index: int) -> Adversary:
        """The adversary of pair number ``index``: all of them within the first few pairs."""
        chosen = self._all_adversaries()
        return chosen[index % len(chosen)]

    def setting(self, index: int) -> Mapping[str, Any]:
        """The setting of pair number ``index``: shifted by one after each round of adversaries, so that all combine."""
        return self.settings[(index + index // len(self._all_adversaries())) % len(self.settings)]

    def _all_adversaries(self) -> Sequence[Adversary]:
        return self.adversaries or (*ADVERSARIES, *(ABSENT if self.absent else ()))


BASE: Final = {"dim": 3, "link": "logistic", "theta_bound": 2.0}
"""Options of every setting that does not state them."""
_TERMS: Final = {**BASE, "epsilon": 4.0, "delta": 1e-5, "seed": 0}
"""Options with a budget, to test which settings are possible."""
_STREAMS: Final = (
    {"horizon": 40},
    {"horizon": None},
    {"horizon": 64, "factorization": "tree"},
    {"horizon": 40, "link": "probit"},
    {"horizon": None, "factorization": "tree"},
    {"horizon": 32, "factorization": "tree", "dim": 2},
    {"horizon": 40, "link": "identity"},
    {"horizon": 40, "link": "log"},
    {"horizon": 40, "base_rate": 0.08},
    {"horizon": 40, "noise": "secure"},
    {"horizon": None, "noise": "exact", "factorization": "geometric"},
    {"horizon": 32, "noise": "exact", "factorization": "tree"},
    {"horizon": 40, "factorization": "toeplitz"},
    {"horizon": None, "factorization": "toeplitz"},
)
_STRUCTURED: Final = (
    {"horizon": 40, "dim": 6, "blocks": 3},
    {"horizon": None, "dim": 4, "blocks": 2, "noise": "exact"},
    {"horizon": 32, "dim": 4, "blocks": 2, "factorization": "tree"},
)
_PLAIN: Final = (
    {"horizon": 40},
    {"horizon": None},
    {"horizon": 40, "link": "probit"},
    {"horizon": 40, "link": "identity"},
    {"horizon": 40, "noise": "secure"},
)
_LOCAL: Final = (
    *_PLAIN,
    {"horizon": 40, "base_rate": 0.08},
    {"horizon": 40, "noise": "exact"},
)
_BATCHED: Final = (*_LOCAL, {"horizon": None, "growth": 0.0}, {"horizon": 40, "reward_age": 5})
_THEORY: Final = {"profile": "theory", "constant": 1.0, "growth": 1.5, "dim": 2, "theta_bound": 1.0}

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        case.policy: case
        for case in (
            Case(
                "stream-glm",
                (*_STREAMS, *_STRUCTURED),
                note="the bound is attained at |theta| = S and for a row in the first leaf only",
            ),
            Case(
                "joint-glm",
                (*_STREAMS, {"horizon": 30, "profile": "theory"}),
                note="no row is worst for matrices and gradients at once; call k of both optimizers is one charge",
            ),
            Case("joint-linucb", _STREAMS, note="attained by two unit vectors at the worst angle in the first leaf"),
            Case(
                "adaprivate-ts",
                tuple({"first_batch": 10, **setting} for setting in _BATCHED),
                note="attained by two unit vectors at the worst angle; one that moves between batches costs less",
                rehearsed=True,
            ),
            Case(
                "shuffle-glm",
                (
                    {"horizon": 150, "dim": 2},
                    {"horizon": 120, "dim": 2, "link": "probit"},
                    {"horizon": 150, "dim": 2, "base_rate": 0.08},
                    {"horizon": 150, "dim": 2, "noise": "secure"},
                    {"horizon": 150, "dim": 2, "path": "bits"},
                ),
                users=110,
                groups=False,
                note="matrix and score have no common worst row; the binomial bound has its offset",
            ),
            Case(
                "shuffle-linucb",
                (
                    {"horizon": 60, "batch_size": 20},
                    {"horizon": None, "batch_size": 16, "dim": 2},
                    {"horizon": 60, "batch_size": 20, "base_rate": 0.08},
                ),
                users=50,
                groups=False,
                note="charged by its Renyi curve, which is looser than the Gaussian one",
            ),
            Case(
                "local-glm",
                _LOCAL,
                groups=False,
                absent=False,
                note="charged 2 L; two gradients of full length at one theta are never opposite",
            ),
            Case(
                "ldp-linucb",
                _LOCAL,
                groups=False,
                absent=False,
                note="attained by two unit vectors at the worst angle",
            ),
        )
    }
)

DRIVES: Final[Mapping[str, Sequence[Case]]] = MappingProxyType(
    {
        "stream-glm": (
            Case(
                "stream-glm",
                (
                    {"horizon": None, "factorization": "tree", "epsilon": 100.0, "theta_bound": 0.5, "dim": 2},
                    # With a head start, leaves of so short a run are a part of the first column only.
                    {"horizon": None, "epsilon": 100.0, "dim": 2, "head_start": 0.0},
                ),
                users=56,
                adversaries=(largest_contribution, late_rows),
                driven=True,
            ),
        ),
        "joint-glm": (
            Case(
                "joint-glm",
                (
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5},
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5, "link": "probit"},
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5, "link": "log"},
                ),
                users=256,
                adversaries=(exploring_rows, largest_gradient),
                driven=True,
            ),
            Case(
                "joint-glm",
                (
                    {
                        "horizon": 1024,
                        "factorization": "tree",
                        "epsilon": 30.0,
                        "theta_bound": 0.85,
                        "link": "identity",
                        "growth": 1.5,
                        "dim": 2,
                    },
                ),
                users=1024,
                adversaries=(moving_rows,),
                driven=True,
            ),
            Case(
                "joint-glm",
                ({**_THEORY, "horizon": 512, "epsilon": 2000.0},),
                users=512,
                adversaries=(exploring_rows, largest_gradient),
                driven=True,
                note="theory charges 2 L, a triangle inequality: two opposite gradients of full length do not exist",
            ),
        ),
        "joint-linucb": (
            Case(
                "joint-linucb",
                ({"horizon": 40}, {"horizon": None, "noise": "exact"}),
                groups=False,
                absent=False,  # a reward that comes late is in a later leaf, where less is attained
                adversaries=(largest_contribution,),
                user=0,  # the first leaf, whose column has the whole norm
            ),
        ),
        "adaprivate-ts": (
            Case(
                "adaprivate-ts",
                ({"horizon": 40, "first_batch": 10}, {"horizon": None, "first_batch": 10, "noise": "exact"}),
                groups=False,
                absent=False,  # a reward that comes late is in another batch, where less is attained
                adversaries=(largest_contribution,),
            ),
        ),
        "shuffle-glm": (
            Case(
                "shuffle-glm",
                ({"horizon": 6_000, "dim": 2, "epsilon": 1.0},),
                users=900,
                groups=False,
                adversaries=(largest_gradient,),
                note="curvature: a row's weight is below its public maximum in the first batch; score: rounded radius",
            ),
            Case(
                "shuffle-glm",
                (
                    {
                        "horizon": 400,
                        "dim": 2,
                        "epsilon": 8.0,
                        "delta": 0.02,
                        "theta_bound": 0.5,
                        "profile": "theory",
                        "constant": 1e-4,
                        "batches": 3,
                        "max_rounds": 3,
                    },
                ),
                users=401,
                groups=False,
                adversaries=(orthogonal_rows,),
                note="later rows weigh less than the matrix's bound; gradients at one theta are not opposite",
            ),
        ),
        "shuffle-linucb": (
            Case(
                "shuffle-linucb",
                ({"horizon": None, "batch_size": 2_000, "dim": 2, "epsilon": 1.0},),
                users=2_001,
                groups=False,
                adversaries=(orthogonal_rows, opposite_rows),
                note="no row is worst for both sums at once: orthogonal ones for x x', opposite ones for r x",
            ),
        ),
    }
)
"""Where each kind of charge is attained, or as nearly as an attack can."""


def case_for(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> Case:
    """The case of a policy; policies that `CASES` does not list are replayed in the ordinary settings of their kind.

    ``options`` take the place of what the settings say; settings that do not go with them are left out.
    """
    case = CASES.get(name) or _ordinary_case(name)
    return _with_options(case, options) if options else case


def _ordinary_case(name: str) -> Case:
    kind = private_class(name)
    ordinary = _STREAMS if issubclass(kind, ContinualPolicy) else _PLAIN
    settings = [setting for setting in ordinary if setting.get("link", "logistic") in kind.links]
    if kind.guarantee == "shuffle":
        both: list[Mapping[str, Any]] = [{"horizon": 150, "dim": 2}, {"horizon": None, "dim": 2}]
        return Case(name, both, users=150, groups=False, rehearsed=True)
    return Case(name, settings, groups=kind._shares_ticks, absent=kind.guarantee != "local", rehearsed=True)


def _with_options(case: Case, options: Mapping[str, Any]) -> Case:
    """A case whose settings all have these options."""
    settings = list[dict[str, Any]]()
    for setting in ({**each, **options} for each in case.settings):
        if setting not in settings and _possible(case.policy, setting):
            settings.append(setting)
    if not settings:  # the error says what is wrong with the options
        audited_policy(case.policy, **{**_TERMS, **case.settings[0], **options})
    return replace(case, settings=settings, rehearsed=True, own_horizon="horizon" in options)


def _possible(name: str, setting: Mapping[str, Any]) -> bool:
    try:
        audited_policy(name, **{**_TERMS, **setting})
    except InvalidInput:
        return False
    return True
