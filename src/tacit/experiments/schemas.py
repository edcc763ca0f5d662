"""Schemas for simulations: three examples that are shipped, and those of a user's files.

The examples are the three most common set-ups, small enough to be read: articles for readers, a treatment for each
patient, an offer for each shop.  docs/guides/features.md explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tacit.environments import SCHEMA, offered_arms
from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Number, Schema


def articles() -> Schema:
    """Readers, and articles that come and go: what is learned of a topic holds for all of its articles."""
    return Schema(
        user=[Number("age", 0, 100), Category("device", ["phone", "tablet", "computer"]), Flag("subscriber")],
        arm=[Category("topic", ["news", "sport", "culture", "science", "food"]), Number("minutes", 0, 20)],
        crosses=[("age", "topic"), ("device", "topic"), ("age", "minutes")],
    )


def patients() -> Schema:
    """Patients, and four treatments with parameters of their own."""
    return Schema(
        user=[
            Number("age", 18, 100),
            Number("bmi", 15, 45),
            Category("sex", ["female", "male"]),
            Flag("smoker"),
            Flag("diabetic"),
        ],
        arm=[Category("treatment", ["A", "B", "C", "D"])],
        per_arm="treatment",
    )


def shops() -> Schema:
    """Shops, and offers of a price and a display: the price is a number, so that between prices is learned too."""
    return Schema(
        user=[
            Category("region", ["north", "east", "south", "west"]),
            Category("kind", ["kiosk", "market", "station"]),
            Number("visitors", 0, 5_000),
        ],
        arm=[Number("price", 1.5, 3.5), Category("display", ["shelf", "counter", "window"])],
        crosses=[("region", "price"), ("kind", "price"), ("visitors", "price"), ("kind", "display")],
    )


EXAMPLES: Mapping[str, Callable[[], Schema]] = MappingProxyType(
    {"articles": articles, "patients": patients, "shops": shops}
)


def load_schema(name: str) -> Schema:
    """Return an example by its name, or read a file to which `Schema.to_json` was written as JSON."""
    if name in EXAMPLES:
        return EXAMPLES[name]()
    path = Path(name)
    if not path.is_file():
        raise InvalidInput(
            f"there is no schema {name!r}: give a file of JSON that schema.to_json() was written to, or one of the "
            f"examples {', '.join(EXAMPLES)}"
        )
    try:
        return Schema.from_json(path.read_bytes())
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def world_of(schema: Schema, arms: int | None = None) -> dict[str, Any]:
    """Return the fields of an `Experiment` that follow from a schema."""
    return {"dim": schema.dim, "arms": offered_arms(schema, arms), "contexts": SCHEMA, "schema": schema.to_json()}
