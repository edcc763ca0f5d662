"""Policies are shared out by their number: evenly, alike in every process, and with as few moves as can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.service.sharing import Member, View, handed_over, maker, taken_over

NAMES = [f"p{number}" for number in range(12)]


def member(identity: str, *, settled: bool = True) -> Member:
    return Member(identity, f"http://{identity}:1", settled)


def loads(view: View) -> list[int]:
    return sorted(list(view.owners.values()).count(each.id) for each in view.members)


def step(view: View) -> View:
    """Everybody acts once on the same view."""
    owners = dict(view.owners)
    for each in view.members:
        owners |= dict.fromkeys(taken_over(view, each.id), each.id)
        given_up = handed_over(view, each.id)
        if given_up is not None:
            owners[given_up] = None
    return replace(view, owners=owners)


views = st.builds(
    lambda count, owners: View(
        tuple(member(f"m{number}") for number in range(count)),
        {name: None if owner is None or owner >= count else f"m{owner}" for name, owner in owners.items()},
    ),
    st.integers(1, 4),
    st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 3)),
)


@given(views)
def test_shares_are_even_in_the_end_and_stay_so(view: View) -> None:
    excess = max(loads(view)) if view.owners else 0
    for _ in range(2 * excess + 2):
        view = step(view)
    assert view.whole
    assert loads(view)[-1] - loads(view)[0] <= 1
    assert step(view) == view


@given(views)
def test_every_policy_is_taken_once_and_one_moves_at_a_time(view: View) -> None:
    taken = [name for each in view.members for name in taken_over(view, each.id)]
    assert sorted(taken) == view.unowned
    moved = [name for each in view.members if (name := handed_over(view, each.id)) is not None]
    assert len(moved) <= (not view.unowned)


def test_dead_process_costs_the_others_nothing() -> None:
    owners = {name: f"m{number % 3}" for number, name in enumerate(NAMES)}
    left = View((member("m0"), member("m1")), {name: None if m == "m2" else m for name, m in owners.items()})
    after = step(left)
    assert all(after.owners[name] == owner for name, owner in owners.items() if owner != "m2")
    assert loads(after) == [6, 6]


def test_policies_move_to_processes_that_have_been_there_for_a_while() -> None:
    view = View((member("m0"), member("m1", settled=False)), dict.fromkeys(NAMES, "m0"))
    assert handed_over(view, "m0") is None
    assert step(replace(view, owners={"p0": None, "p1": None})).whole  # one that nobody owns does not wait
    settled = replace(view, members=(member("m0"), member("m1")))
    assert handed_over(settled, "m0") in NAMES
    assert handed_over(settled, "m1") is None


def test_new_policies_are_made_where_the_fewest_are() -> None:
    view = View((member("m0"), member("m1")), {"p0": "m0"})
    assert maker(view, "p1") == member("m1")
    assert maker(View(), "p1") is None
    chosen = {maker(View((member("m0"), member("m1"))), name) for name in NAMES}
    assert len(chosen) == 2  # among equals the name decides


@pytest.mark.parametrize(("owner", "found"), [("m1", member("m1")), (None, None), ("m9", None)])
def test_owners_are_members(owner: str | None, found: Member | None) -> None:
    assert View((member("m0"), member("m1")), {"p": owner}).owner("p") == found
    assert not View().whole
