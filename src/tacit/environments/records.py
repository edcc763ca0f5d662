"""Simulated users of a schema, to see what to expect of its features before the first real user comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tacit.environments.registry import EnvironmentSetting, Rounds, register_environment
from tacit.errors import InvalidInput
from tacit.features import Category, Schema
from tacit.typing import FloatArray

SCHEMA: Final = "schema"
"""The name of the environment."""
USUAL_ARMS: Final = 20
"""Arms of a round, where the schema does not say how many there are."""


def offered_arms(schema: Schema, asked: int | None = None) -> int:
    """Return how many arms a round of simulated users has.

    Parameters
    ----------
    schema : Schema
        Schema of users and arms.
    asked : int, optional
        Arms to use, of which a schema with ``per_arm`` has at most one for each value; by default all of these, and
        20 without ``per_arm``.

    Returns
    -------
    int
        Arms of a round.

    Examples
    --------
    >>> from tacit.environments import offered_arms
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("topic", ["news", "arts"])], per_arm="topic")
    >>> offered_arms(schema), offered_arms(schema, 1)
    (2, 1)
    """
    if schema.per_arm is None:
        return USUAL_ARMS if asked is None else asked
    values = len(_own_values(schema))
    return values if asked is None else min(asked, values)


def _own_values(schema: Schema) -> list[Any]:
    """Values of the ``per_arm`` category, each of which has separate parameters; none without ``per_arm``."""
    return [
        value
        for field in schema.arm
        if isinstance(field, Category) and field.name == schema.per_arm
        for value in field.values
    ]


def _schema_of(setting: EnvironmentSetting) -> Schema:
    if setting.schema is None:
        raise InvalidInput(
            "the environment 'schema' has users of a schema: give one (on the command line --schema FILE)"
        )
    return setting.schema


def _check(setting: EnvironmentSetting) -> None:
    schema = _schema_of(setting)
    if not schema.arm:
        raise InvalidInput("the schema has no field of arms: all arms are the same, and there is nothing to choose")
    if setting.dim != schema.dim:
        raise InvalidInput(f"dim follows from the schema, which has {schema.dim}, not {setting.dim}")
    most = offered_arms(schema, setting.arms)
    if setting.arms > most:
        raise InvalidInput(f"arms must be at most {most}, one for each value of {schema.per_arm!r}, not {setting.arms}")


@register_environment(SCHEMA, check=_check)
def records(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """Users of a schema, uniform over what its fields may say.

    The arms of a round are values of the category that ``per_arm`` names, all of them or as many as are asked for,
    drawn without repetition.  Without ``per_arm`` they are drawn anew, each field uniform over what it may say.
    All other fields of arms are drawn anew for every user.
    """
    return rounds_with(rng, setting, setting.draw_theta(rng))


def rounds_with(rng: np.random.Generator, setting: EnvironmentSetting, theta: FloatArray) -> Iterator[Rounds]:
    """Rounds of simulated users and arms whose true parameter is ``theta``."""
    schema = _schema_of(setting)
    for rounds in setting.block_sizes():
        yield setting.rounds(sampled_contexts(rng, schema, rounds, setting.arms), theta)


def sampled_contexts(rng: np.random.Generator, schema: Schema, rounds: int, arms: int) -> FloatArray:
    """Rows of ``rounds`` simulated users with ``arms`` arms each, shape (rounds, arms, d)."""
    users, values = schema.sample_users(rng, rounds), _own_values(schema)
    if len(schema.arm) == 1 and len(values) == arms:
        return schema.encode(users, [{schema.per_arm: value} for value in values])
    return contexts_of(schema, users, sampled_arms(rng, schema, rounds, arms))


def contexts_of(schema: Schema, users: Any, offered: Mapping[str, Any]) -> FloatArray:
    """Rows of users and their arms, both as columns, of shape (rounds,) and (rounds, arms)."""
    rounds, arms = next(iter(offered.values())).shape
    columns = {name: column.reshape(-1) for name, column in offered.items()}
    if isinstance(users, Mapping):
        columns |= {name: np.repeat(column, arms) for name, column in users.items()}
    return schema.encode(columns).reshape(rounds, arms, schema.dim)


def sampled_arms(rng: np.random.Generator, schema: Schema, rounds: int, arms: int) -> dict[str, Any]:
    """Columns of the fields of ``arms`` simulated arms for each round, shape (rounds, arms)."""
    values, offered = _own_values(schema), dict(schema.sample_arms(rng, rounds, arms))
    if schema.per_arm is not None:
        numbers = np.tile(np.arange(len(values)), (rounds, 1))
        offered[schema.per_arm] = np.array(values, dtype=object)[rng.permuted(numbers, axis=1)[:, :arms]]
    return offered
