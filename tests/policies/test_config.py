"""Configurations: frozen, checked, documented, JSON both ways; and what reads them reads all of them."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import FrozenInstanceError, fields
from typing import Any, ClassVar

import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.experiments.spec import Experiment
from tacit.policies.baselines.uniform import UniformRandom
from tacit.policies.config import Config, PrivateConfig, configuration, describe, option
from tacit.policies.registry import _REGISTERED, POLICIES, make_policy, policy_class
from tests.contracts.policies import make


def _minimal(name: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"dim": 3, "horizon": 500, "seed": 4}
    return arguments | ({"epsilon": 2.0, "delta": 1e-5} if policy_class(name).private else {})


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_configuration_survives_json(name: str) -> None:
    config = policy_class(name).config_type.given(_minimal(name), name)
    values = json.loads(json.dumps(config.to_json(), allow_nan=False))
    assert type(config).from_json(values) == config


def test_infinity_survives_json() -> None:
    config = PrivateConfig(dim=2, epsilon=math.inf)
    assert PrivateConfig.from_json(json.loads(json.dumps(config.to_json(), allow_nan=False))) == config


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_field_of_every_policy_is_explained(name: str) -> None:
    kind = policy_class(name)
    for text in describe(kind.config_type):
        assert len(text.about) > 10
        assert text.about.endswith(".")
        assert f"\n{text.name} : " in (kind.__doc__ or "")
    shown = inspect.signature(kind).parameters
    assert list(shown) == ["config", *(field.name for field in fields(kind.config_type))]


@pytest.mark.parametrize("name", list(POLICIES))
def test_class_configuration_and_name_make_the_same_policy(name: str) -> None:
    kind = policy_class(name)
    arguments = _minimal(name)
    by_name, by_class = make_policy(name, **arguments), kind(**arguments)
    by_config = kind(kind.config_type(**arguments))
    assert by_name.config == by_class.config == by_config.config
    assert by_name.fingerprint() == by_class.fingerprint() == by_config.fingerprint()


def test_make_policy_states_and_explains_the_common_fields() -> None:
    stated = [name for name in inspect.signature(make_policy).parameters if name not in ("name", "options")]
    assert stated == [field.name for field in fields(PrivateConfig)]
    text = inspect.getdoc(tacit.make_policy) or ""
    assert all(f"``{name}``" in text for name in POLICIES)
    for told in describe(PrivateConfig):
        default = "" if told.default == "required" else f", default {told.default}"
        assert f"\n{told.name} : {told.kind}{default}\n    " in text


@configuration
class OwnDefaults(Config):
    """Configuration of a policy whose defaults differ from the usual ones."""

    theta_bound: float = option("Another bound.", default=5.0)
    link: str = option("Another link.", default="probit")
    horizon: int | None = option("A horizon.", default=70)
    base_rate: float | None = option("Another rate.", default=0.3)
    reward_age: int | None = option("Another age.", default=9)


class WithOwnDefaults(UniformRandom):
    """Chooses at random, with defaults of its own."""

    name: ClassVar[str] = "own-defaults"
    config_type = OwnDefaults


def test_make_policy_forwards_what_was_given_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_REGISTERED, "own-defaults", WithOwnDefaults)
    usual = make_policy("own-defaults", dim=2).config
    assert (usual.theta_bound, usual.link, usual.horizon) == (5.0, "probit", 70)
    told = make_policy("own-defaults", dim=2, theta_bound=1.0, link="logistic", horizon=None).config
    assert (told.theta_bound, told.link, told.horizon) == (1.0, "logistic", None)


def test_an_experiment_leaves_a_policy_its_own_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_REGISTERED, "own-defaults", WithOwnDefaults)
    made = Experiment("own-defaults", "probit", dim=2, arms=2, horizon=10, theta_norm=1.0).make_policy(1)
    assert (made.config.theta_bound, made.config.reward_age, made.config.base_rate) == (1.0, 9, 0.3)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make("stream-glm").config.epsilon = 100.0


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("stream-glm", {"epsilon": 1.0, "delta": 1e-6}, "stream-glm needs dim. Number of features"),
        ("stream-glm", {"dim": 3}, "stream-glm needs epsilon. Privacy budget"),
        ("stream-glm", {"dim": 3, "epsilon": 1.0}, "delta must be given"),
        ("stream-glm", {"dim": 3, "epsilon": "1", "delta": 1e-6}, "epsilon must be a real number, got '1'"),
        ("stream-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "widht": 1.0}, "does not know 'widht'"),
        ("stream-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "width": -1.0}, "width must be nonnegative"),
        ("stream-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "noise": "loud"}, "noise must be one of"),
        ("stream-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "link": "tan"}, "link"),
        ("stream-glm", {"dim": True, "epsilon": 1.0, "delta": 1e-6}, "dim must be an integer"),
        ("joint-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "growth": 1.0}, "growth must be above 1"),
        ("joint-glm", {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "profile": "mine"}, "profile must be one of"),
        ("greedy-mle", {"dim": 3, "epsilon": 1.0}, "greedy-mle learns from raw data and has no privacy"),
        ("greedy-mle", {"dim": 3, "seed": -1}, "seed must be >= 0"),
        ("no-such-policy", {"dim": 3}, "policy must be one of"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_policy(name, **arguments)


def test_a_configuration_and_fields_or_another_policys_configuration_are_refused() -> None:
    kind = policy_class("greedy-mle")
    with pytest.raises(InvalidInput, match="a configuration or its fields, not both"):
        kind(kind.config_type(dim=2), seed=1)
    with pytest.raises(InvalidInput, match="greedy-mle needs a GreedyConfig, not Config"):
        kind(Config(dim=2))


def test_fields_of_a_subclass_come_last_and_are_checked() -> None:
    def even(name: str, value: Any) -> int:
        if value % 2:
            raise InvalidInput(f"{name} must be even")
        return int(value)

    @configuration
    class Mine(Config):
        """Configuration of a test."""

        pairs: int = option("How many.", default=2, check=even)
        label: str | None = option("What it is called.", default=None)

    assert Mine(dim=1).pairs == 2
    assert [text.name for text in describe(Mine)][-2:] == ["pairs", "label"]
    assert "pairs : int, default 2\n    How many." in (Mine.__doc__ or "")
    with pytest.raises(InvalidInput, match="pairs must be even"):
        Mine(dim=1, pairs=3)
