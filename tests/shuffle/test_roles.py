"""The three roles: bad reports are dropped and counted, the rest of the batch is unharmed."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import tacit.shuffle
from tacit.errors import AlreadyReleased, BatchTooSmall, InvalidInput
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.calibration import calibrate
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.guarantee import guarantee
from tacit.shuffle.messages import ShuffledBits, encode_reports
from tacit.shuffle.parameters import PROBABILITY_UNITS, SumProtocol
from tacit.shuffle.randomizer import ones_per_coordinate, randomize, randomize_in_chunks
from tacit.shuffle.shuffler import Shuffler, could_be_honest, uniform_arrangement
from tacit.typing import ByteArray, FloatArray

USERS = 300


@pytest.fixture
def protocol() -> SumProtocol:
    return calibrate(OuterProducts(3), USERS, 2.0, 1e-5, label="batch-1/matrix")


def rows(users: int, dim: int, seed: int = 0) -> FloatArray:
    x = np.random.default_rng(seed).normal(size=(users, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=np.float64)


def reports_of(protocol: SumProtocol, users: int = USERS, seed: int = 1) -> ByteArray:
    return randomize(protocol, rows(users, protocol.domain.dim, seed), np.random.default_rng(seed))


def ones(batch: ShuffledBits) -> list[int]:
    return [int(np.bitwise_count(bits).sum()) for bits in batch.bits]


def released_ones(protocol: SumProtocol, reports: list[bytes] | ByteArray) -> list[int]:
    shuffler = Shuffler(protocol)
    shuffler.collect(reports)
    return ones(shuffler.release(np.random.default_rng(0)))


def all_ones(protocol: SumProtocol) -> bytes:
    ids = np.full((1, 16), 7, dtype=np.uint8)
    return bytes(encode_reports(protocol, ids, protocol.widths[None, :])[0])


def test_bad_reports_are_dropped_and_counted_and_the_rest_is_unharmed(protocol: SumProtocol) -> None:
    good = [line.tobytes() for line in reports_of(protocol)]
    other_round = protocol.relabelled("batch-1/gradient")
    strangers = [line.tobytes() for line in reports_of(other_round, 4, seed=2)]
    wrong_version = good[0][:2] + b"\x02\x00" + good[0][4:]
    fresh_id = bytes(range(16))
    bad_padding = good[0][:12] + fresh_id + good[0][28:-1] + bytes([good[0][-1] | 0x80])
    assert protocol.payload_bits % 8
    bad = [good[5][:-1], b"", good[6] + b"\x00", *strangers, b"XX" + good[0][2:], wrong_version]
    bad += [good[3], good[3], bad_padding, all_ones(protocol), b"\xff" * len(good[0])]
    mixed = good[:100] + bad[:6] + good[100:] + bad[6:]
    shuffler = Shuffler(protocol)
    shuffler.collect(mixed)
    dropped = shuffler.dropped
    assert (dropped.truncated, dropped.oversized, dropped.mislabelled) == (2, 1, 4 + 1 + 1)
    assert (dropped.version_mismatched, dropped.repeated) == (1, 2)
    assert (dropped.malformed, dropped.impossible) == (1, 1)
    assert dropped.total == len(bad)
    assert shuffler.admitted == USERS
    assert ones(shuffler.release(np.random.default_rng(0))) == released_ones(protocol, good)


def test_a_dropped_report_does_not_use_up_its_id(protocol: SumProtocol) -> None:
    good = reports_of(protocol)
    damaged = good[0].copy()
    damaged[2] = 9
    shuffler = Shuffler(protocol)
    shuffler.collect([damaged.tobytes()])
    shuffler.collect(good)
    assert (shuffler.admitted, shuffler.dropped.total) == (USERS, 1)


def test_arrays_of_the_wrong_width_are_counted_too(protocol: SumProtocol) -> None:
    good = reports_of(protocol)
    shuffler = Shuffler(protocol)
    shuffler.collect(good[:, :-3])
    shuffler.collect(np.hstack([good, good[:, :1]]))
    assert (shuffler.dropped.truncated, shuffler.dropped.oversized) == (USERS, USERS)


@pytest.mark.parametrize("domain", [OuterProducts(2), OuterProducts(5), Ball(1), Ball(2), Ball(7)])
def test_honest_reports_are_never_dropped(domain: OuterProducts | Ball) -> None:
    """Whatever the row: corners of the ball, and noise at its extremes."""
    users = 3_000
    x = rows(users, domain.dim)
    x[: domain.dim] = np.eye(domain.dim)
    x[domain.dim : 2 * domain.dim] = -np.eye(domain.dim)
    x[100:200] = np.sign(x[100:200]) / np.sqrt(domain.dim)
    for grid, noise_bits in ((4, 1), (17, 3), (60, 12)):
        protocol = SumProtocol("", domain, grid, noise_bits, PROBABILITY_UNITS // 2, 1)
        counts = ones_per_coordinate(protocol, x, np.random.default_rng(2))
        assert np.all(could_be_honest(protocol, counts))
        rounded = np.ceil(protocol.scaled(domain.embed(x)) - 1e-9).astype(np.int64)
        assert np.all(could_be_honest(protocol, np.minimum(rounded, protocol.levels) + noise_bits))
        assert np.all(could_be_honest(protocol, np.floor(protocol.scaled(domain.embed(x))).astype(np.int64)))
        assert could_be_honest(protocol, protocol.widths[None, :])[0] == (domain.size == 1)


def test_a_batch_below_its_size_is_never_opened(protocol: SumProtocol) -> None:
    shuffler = Shuffler(protocol)
    reports = reports_of(protocol)
    shuffler.collect(reports[:-1])
    shuffler.collect(reports[:-1])
    with pytest.raises(BatchTooSmall, match="299 reports admitted, 300"):
        shuffler.release(np.random.default_rng(0))
    shuffler.collect(reports[-1])
    batch = shuffler.release(np.random.default_rng(0))
    assert batch.reports == USERS
    with pytest.raises(AlreadyReleased):
        shuffler.release(np.random.default_rng(0))
    with pytest.raises(AlreadyReleased):
        shuffler.collect(reports)


def test_the_analyzer_refuses_what_does_not_fit(protocol: SumProtocol) -> None:
    shuffler = Shuffler(protocol)
    shuffler.collect(reports_of(protocol))
    batch = shuffler.release(np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="other parameters"):
        analyze(protocol.relabelled("batch-2/matrix"), batch)
    with pytest.raises(BatchTooSmall):
        analyze(protocol, ShuffledBits(batch.digest, USERS - 1, batch.bits, batch.lengths))
    with pytest.raises(InvalidInput, match="lengths"):
        analyze(protocol, ShuffledBits(batch.digest, USERS + 1, batch.bits, batch.lengths))


def test_the_order_of_reports_leaves_no_trace(protocol: SumProtocol) -> None:
    reports = reports_of(protocol)
    first, second = Shuffler(protocol), Shuffler(protocol)
    first.collect(reports)
    second.collect(reports[::-1])
    a, b = (shuffler.release(np.random.default_rng(5)) for shuffler in (first, second))
    assert all(np.array_equal(x, y) for x, y in zip(a.bits, b.bits, strict=True))


def test_arrangements_are_uniform() -> None:
    """All 10 ways to place 2 ones among 5 bits, equally often; any count is met exactly."""
    rng = np.random.default_rng(0)
    tally: dict[int, int] = {}
    runs = 4_000
    for _ in range(runs):
        code = int(uniform_arrangement(5, 2, rng)[0])
        tally[code] = tally.get(code, 0) + 1
    assert len(tally) == 10
    statistic = sum((seen - runs / 10) ** 2 / (runs / 10) for seen in tally.values())
    assert chi2.sf(statistic, 9) > 1e-3
    for length, set_bits in (
        (1, 0),
        (1, 1),
        (64, 64),
        (1_000, 0),
        (1_001, 1),
        (1_001, 1_000),
        (5_000, 1_234),
    ):
        bits = uniform_arrangement(length, set_bits, rng)
        assert bits.size == (length + 7) // 8
        assert int(np.bitwise_count(bits).sum()) == set_bits
        assert not np.any(np.unpackbits(bits, bitorder="little")[length:])


def test_places_of_ones_are_uniform_in_long_arrangements() -> None:
    rng = np.random.default_rng(1)
    total = np.zeros(640)
    for _ in range(3_000):
        total += np.unpackbits(uniform_arrangement(640, 100, rng), bitorder="little")
    rate = 100 / 640
    z = (total - 3_000 * rate) / np.sqrt(3_000 * rate * (1 - rate))
    assert np.abs(z).max() < 4.5
    assert abs(np.var(z) - 1.0) < 0.25


def test_debiased_by_the_reports_that_arrived(protocol: SumProtocol) -> None:
    x = rows(USERS + 450, 3, seed=8)
    rng = np.random.default_rng(9)
    shuffler = Shuffler(protocol)
    for chunk in randomize_in_chunks(protocol, x, rng):
        shuffler.collect(chunk)
    result = analyze(protocol, shuffler.release(rng))
    error = result.decoded() - x.T @ x
    assert result.reports == USERS + 450
    assert np.abs(error).max() < 5.0 * result.noise_sd
    assert np.array_equal(error, error.T)


@pytest.mark.parametrize("role", ["randomizer", "shuffler", "analyzer"])
def test_roles_do_not_import_each_other(role: str) -> None:
    tree = ast.parse((Path(tacit.shuffle.__file__).parent / f"{role}.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    shared = {"messages", "parameters"}
    ours = {module.rsplit(".", 1)[1] for module in imported if module and module.startswith("tacit.shuffle.")}
    assert ours <= shared


def test_a_batch_has_as_many_reports_as_were_collected(protocol: SumProtocol) -> None:
    """Else an empty batch could be released as a large one."""
    with pytest.raises(TypeError, match="admitted"):
        Shuffler(protocol, admitted=10_000)  # type: ignore[call-arg]


@pytest.mark.parametrize("tail_delta", [0.0, -1e-9, 1.0, float("nan")])
def test_what_a_guarantee_leaves_out_is_a_probability(protocol: SumProtocol, tail_delta: float) -> None:
    with pytest.raises(InvalidInput, match="tail_delta"):
        guarantee(protocol, tail_delta)
