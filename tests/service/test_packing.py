"""Entries and snapshots as bytes: what is packed comes back equal, and damaged bytes are refused and run nothing."""

from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tacit
from tacit.errors import CorruptState
from tacit.policies.log import Abandoned, Decided, LogEntry, Released, Rewarded
from tacit.policies.registry import POLICIES
from tacit.service.packing import pack, pack_entry, pack_snapshot, unpack, unpack_entry, unpack_snapshot
from tests.service.parts import SHUFFLED, STREAMED, logged, same_state

QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
DTYPES = st.sampled_from(["<f8", ">f8", "<f4", "<i8", "<i4", "<u4", "u1", "?", "<f2"])
ARRAYS = DTYPES.flatmap(lambda kind: hnp.arrays(np.dtype(kind), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
NAMES = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def same_entry(first: LogEntry, second: LogEntry) -> bool:
    """Equal values of equal kinds, arrays compared with their types."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Released) and isinstance(second, Released):
        return first.kind == second.kind and same_arrays(first.values, second.values)
    if isinstance(first, Decided) and isinstance(second, Decided):
        rest = (first.first, first.arms) == (second.first, second.arms)
        return rest and same_arrays({"memos": first.memos}, {"memos": second.memos})
    return first == second


def same_arrays(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return list(first) == list(second) and all(
        a.shape == b.shape
        and a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
        and a.astype(b.dtype).tobytes() == b.tobytes()
        for a, b in ((first[name], second[name]) for name in first)
    )


def cases() -> list[Any]:
    """Every policy, and those with streams by every factorization."""
    found: list[Any] = [(name, {}) for name in POLICIES]
    found += [(name, {"factorization": kind}) for name in STREAMED for kind in ("tree", "toeplitz")]
    found += [(name, {"reward_age": 5}) for name in POLICIES if name not in SHUFFLED]
    return [pytest.param(*case, id="-".join([case[0], *map(str, case[1].values())])) for case in found]


@pytest.mark.parametrize(("name", "options"), cases())
def test_every_entry_of_every_policy_comes_back(name: str, options: dict[str, Any]) -> None:
    policy, log = logged(name, 45, **options)
    kinds = {type(entry) for entry in log}
    assert kinds >= {Decided, Rewarded, Abandoned}
    assert (Released in kinds) == policy.private
    for entry in log:
        data = pack_entry(entry)
        assert isinstance(data, bytes)
        assert same_entry(entry, unpack_entry(data))
    again = tacit.restore(unpack_snapshot(pack_snapshot(policy.snapshot())))
    same_state(policy, again)
    assert again.fingerprint() == policy.fingerprint()


@QUICK
@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
def test_rewards_of_any_value_come_back(decision: int, reward: float) -> None:
    assert unpack_entry(pack_entry(Rewarded(decision, reward))) == Rewarded(decision, reward)
    assert unpack_entry(pack_entry(Abandoned(decision))) == Abandoned(decision)


@QUICK
@given(
    st.integers(0, 2**53),
    st.integers(1, 5).flatmap(
        lambda users: st.tuples(
            st.lists(st.integers(0, 2**32 - 1), min_size=users, max_size=users),
            st.integers(0, 4).flatmap(lambda size: hnp.arrays(np.float64, (users, size))),
        )
    ),
)
def test_decisions_of_any_shape_come_back(first: int, made: tuple[list[int], Any]) -> None:
    entry = Decided(first, *made)
    assert same_entry(entry, unpack_entry(pack_entry(entry)))


@QUICK
@given(st.dictionaries(NAMES, JSON, max_size=4), st.dictionaries(NAMES, ARRAYS, max_size=3))
def test_headers_and_arrays_come_back_and_may_be_written_to(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    found, unpacked = unpack(pack(header, arrays))
    assert found == json.loads(json.dumps(header))
    assert same_arrays(arrays, unpacked)
    for array in unpacked.values():
        assert array.flags.writeable
        assert array.dtype.isnative


@pytest.mark.parametrize("values", [np.array([object()]), np.array(["text"]), np.array([1j])])
def test_what_is_no_plain_numbers_is_not_packed(values: Any) -> None:
    with pytest.raises(CorruptState, match="not plain numbers"):
        pack({}, {"a": values})


def _samples() -> list[bytes]:
    _, log = logged("stream-glm", 15)
    return [pack_entry(next(entry for entry in log if isinstance(entry, kind))) for kind in (Released, Decided)] + [
        pack_entry(Rewarded(3, 1.0)),
        pack_entry(Abandoned(3)),
    ]


def _read(data: bytes) -> None:
    """Damaged bytes may happen to be well formed; if they are not, that is CorruptState and nothing else."""
    for read in (unpack_entry, unpack, unpack_snapshot):
        try:
            read(data)
        except CorruptState:
            continue


@pytest.mark.parametrize("sample", _samples(), ids=["released", "decided", "rewarded", "abandoned"])
def test_damaged_entries_are_corrupt_states_and_no_other_error(sample: bytes) -> None:
    rng = np.random.default_rng(5)
    for length in range(len(sample)):
        _read(sample[:length])
    _read(sample + b"\0")
    for _ in range(1500):
        damaged = bytearray(sample)
        for position in rng.integers(0, len(sample), int(rng.integers(1, 4))):
            damaged[position] = rng.integers(256)
        _read(bytes(damaged))


@pytest.mark.parametrize("sample", _samples()[1:3], ids=["decided", "rewarded"])
def test_shortened_entries_are_refused(sample: bytes) -> None:
    for length in range(len(sample)):
        if (len(sample) - length) % 8 or sample[:1] != b"D":  # a shorter memo is the policy's to refuse
            with pytest.raises(CorruptState):
                unpack_entry(sample[:length])


def _packed(document: str, rest: bytes = b"") -> bytes:
    text = document.encode()
    return struct.pack("<Q", len(text)) + text + rest


@pytest.mark.parametrize(
    "document",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"header": {}, "arrays": null}',
        '{"header": {}, "arrays": [1]}',
        '{"header": 3, "arrays": []}',
        '{"header": "ab", "arrays": []}',
        '{"header": {}, "arrays": [["a", "O", [1]]]}',
        '{"header": {}, "arrays": [["a", "f8,O", [1]]]}',
        '{"header": {}, "arrays": [["a", "V8", [1]]]}',
        '{"header": {}, "arrays": [["a", {"names": ["x"], "formats": ["O"]}, [1]]]}',
        '{"header": {}, "arrays": [["a", ["x", "O"], [1]]]}',
        '{"header": {}, "arrays": [["a", null, [1]]]}',
        '{"header": {}, "arrays": [["a", "a8", [1]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [-1]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [-1, -1]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [9223372036854775808]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [4611686018427387904, 4]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [0, 4611686018427387904]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [1.5]]]}',
        '{"header": {}, "arrays": [["a", "<f8", "1"]]}',
        '{"header": {}, "arrays": [["a", "<f8", 1]]}',
        '{"header": {}, "arrays": [[["a"], "<f8", [1]]]}',
        '{"header": {}, "arrays": [["a", "<f8", [2]]]}',
        '{"header": {"n": ' + "9" * 5000 + '}, "arrays": []}',
        '{"header": ' + "[" * 100_000,
    ],
    ids=range(27),
)
def test_documents_that_do_not_describe_their_arrays_are_refused(document: str) -> None:
    with pytest.raises(CorruptState):
        unpack(_packed(document, bytes(8)))
    with pytest.raises(CorruptState):
        unpack_entry(b"P" + _packed(document, bytes(8)))


@pytest.mark.parametrize(
    "header",
    [
        {"entry": "Decided", "first": float("inf"), "arms": []},
        {"entry": "Abandoned", "decision": float("inf")},
        {"entry": "Abandoned", "decision": None},
        {"entry": "Rewarded", "decision": 1, "reward": 10**400},
        {"entry": ["Released"], "kind": "leaf"},
    ],
)
def test_parts_that_are_no_entry_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(CorruptState, match="not an entry of a log"):
        unpack_entry(b"P" + pack(header, {}))


class _Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("code was run",)


def test_nothing_is_unpickled() -> None:
    data = pickle.dumps(_Bomb())
    for prefix in (b"", b"P", b"D", b"W", b"P" + struct.pack("<Q", len(data)), struct.pack("<Q", len(data))):
        _read(prefix + data)
    with pytest.raises(CorruptState):
        unpack(_packed('{"header": {}, "arrays": [["a", "O", [1]]]}', data))


@pytest.mark.parametrize("data", [b"", b"X", b"XYZ", b"P", b"D", b"W"])
def test_bytes_that_begin_as_no_entry_does_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptState, match=r"not an entry of a log|not a packed state"):
        unpack_entry(data)
