"""What a study is made of: who was randomised and how, what counts as a reward, and what policies are told.

Schemas and bounds are fixed by what is public before a trial: its protocol, what a form can say, and how much chances
can differ.  None is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.environments import Outcomes, People, fitted_outcomes
from tacit.errors import InvalidInput
from tacit.evaluation import Trial, make_trial
from tacit.evaluation.trials import EQUAL
from tacit.features import Category, Flag, Number, Schema
from tacit.typing import FloatArray

ARM, REWARD, STRATUM = "arm", "reward", "stratum"
LIGHTER: Final = 0.5
"""Weight of what is known of people, where the arm is expected to matter most."""


class TrialTable(NamedTuple):
    """What a trial tells of N people.

    Parameters
    ----------
    columns : dict
        Fields of the schema, the arm, the reward, and the stratum where there is one: N lines each.
    traits : array, shape (N, p)
        Numbers that describe people for the outcome model, more than the schema has.
    truth : array, shape (N, K), optional
        The reward of every arm, where it is known.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.studies import TrialTable
    >>> TrialTable({"arm": ["A", "B"], "reward": np.array([1.0, 0.0])}, np.zeros((2, 1))).traits.shape
    (2, 1)
    """

    columns: dict[str, Any]
    traits: FloatArray
    truth: FloatArray | None = None


@dataclass(frozen=True)
class TrialStudy:
    """A trial, and how policies meet it.

    Parameters
    ----------
    name, title : str
        What the study is called, and one line about it.
    randomised, rewarded : str
        Who was randomised and how, and what a reward is.
    limits : str
        What the trial cannot tell.
    schema : Schema
        What policies see of people and arms.
    theta_bound : float
        Bound on the true parameter that policies are told.
    alone_bound : float
        Bound for policies that see the arm alone.
    read : callable
        Returns the `TrialTable`.
    base_rate : float, optional
        Mean reward of an arm that is neither good nor bad, which policies are told.
    equal_shares : bool
        Whether all arms had the same chance; they are counted within strata otherwise.

    Examples
    --------
    >>> from tacit.studies import STUDIES_OF_TRIALS
    >>> study = STUDIES_OF_TRIALS["actg175"]
    >>> study.schema.dim, study.alone.dim, study.theta_bound
    (28, 4, 4.0)
    """

    name: str
    title: str
    randomised: str
    rewarded: str
    limits: str
    schema: Schema
    theta_bound: float
    alone_bound: float
    read: Callable[[], TrialTable]
    base_rate: float | None = None
    equal_shares: bool = True

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        (field,) = self.schema.arm
        if not isinstance(field, Category):
            raise InvalidInput(f"arms of the study {self.name} must be a category")
        return tuple(map(str, field.values))

    @property
    def alone(self) -> Schema:
        """The schema that has the arm alone."""
        return Schema(arm=self.schema.arm, intercept=False)

    @cached_property
    def table(self) -> TrialTable:
        """What the trial tells, read from the package that has it."""
        return self.read()

    @cached_property
    def outcomes(self) -> Outcomes:
        """Mean reward of every arm for every person: the truth where it is known, else a fitted model."""
        table = self.table
        if table.truth is not None:
            return Outcomes(table.truth, 0.0)
        places = {name: place for place, name in enumerate(self.arms)}
        given = np.array([places[name] for name in table.columns[ARM]])
        return fitted_outcomes(table.traits, given, table.columns[REWARD], len(places))

    @cached_property
    def people(self) -> People:
        """People of the semi-synthetic replay; policies never see their means."""
        return People(self.table.columns, tuple({ARM: name} for name in self.arms), self.outcomes.means)

    def log(self, schema: Schema) -> Trial:
        """Return the trial as it was, seen through a schema.

        Parameters
        ----------
        schema : Schema
            ``schema`` of the study, or ``alone``.

        Returns
        -------
        Trial
            Its log.
        """
        shares, stratum = (EQUAL, None) if self.equal_shares else (None, STRATUM)
        return make_trial(schema, self.table.columns, reward=REWARD, shares=shares, stratum=stratum)


def lighter_number(name: str, low: float, high: float) -> Number:
    """A number of people that counts half as much as the arm."""
    return Number(name, low, high, weight=LIGHTER)


def lighter_flag(name: str) -> Flag:
    """A flag of people that counts half as much as the arm."""
    return Flag(name, weight=LIGHTER)
