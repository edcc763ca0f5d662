"""Encoding: what is written is read back, sizes are as stated, parameters are named by their digest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.messages import (
    HEADER_BYTES,
    ID_BYTES,
    decode_counts,
    decode_ids,
    encode_reports,
    report_bytes,
)
from tacit.shuffle.parameters import PROBABILITY_UNITS, SumProtocol


@settings(max_examples=50, deadline=None)
@given(
    dim=st.integers(1, 6),
    grid=st.integers(1, 40),
    noise_bits=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_reports_survive_the_wire(dim: int, grid: int, noise_bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    protocol = SumProtocol("wire", OuterProducts(dim), grid, noise_bits, 1000, 1)
    counts = rng.integers(0, protocol.widths + 1, size=(7, protocol.domain.size))
    ids = rng.integers(0, 256, size=(7, ID_BYTES), dtype=np.uint8)
    reports = encode_reports(protocol, ids, counts)
    assert reports.shape == (7, report_bytes(protocol))
    assert report_bytes(protocol) == HEADER_BYTES + -(-int(protocol.widths.sum()) // 8)
    assert np.array_equal(decode_counts(protocol, reports), counts)
    assert decode_ids(reports) == [line.tobytes() for line in ids]


def test_the_layout_is_fixed() -> None:
    protocol = SumProtocol("layout", Ball(2), 2, 1, PROBABILITY_UNITS // 2, 1)
    ids = np.arange(16, dtype=np.uint8)[None, :]
    report = encode_reports(protocol, ids, np.array([[3, 1]]))[0].tobytes()
    assert report[:4] == b"TS\x01\x00"
    assert report[4:12] == protocol.digest
    assert report[12:28] == bytes(range(16))
    assert report[28:] == bytes([0b00100111, 0])  # 11100 10000, lowest bit first


def test_the_digest_names_every_parameter() -> None:
    base = ("a", Ball(2), 3, 4, 5, 6)
    variants = [("b", *base[1:]), ("a", Ball(3), *base[2:]), ("a", OuterProducts(2), *base[2:])]
    variants += [("a", Ball(2), 3 + (i == 0), 4 + (i == 1), 5 + (i == 2), 6 + (i == 3)) for i in range(4)]
    digests = {SumProtocol(*fields).digest for fields in [base, *variants]}  # type: ignore[arg-type]
    assert len(digests) == len(variants) + 1
    assert SumProtocol(*base).digest == SumProtocol(*base).digest


def test_ranges_of_packed_outer_products() -> None:
    domain = OuterProducts(3, bound=2.0)
    rng = np.random.default_rng(0)
    packed = domain.embed(rng.normal(size=(2_000, 3)) * 3.0)
    assert np.all(packed >= domain.lower - 1e-12)
    assert np.all(packed <= domain.upper + 1e-12)
    assert np.all(np.linalg.norm(packed, axis=1) <= 2.0 * (1 + 1e-12))
    distances = np.linalg.norm(packed[:1000] - packed[1000:], axis=1)
    assert domain.sensitivity * 0.97 < distances.max() <= domain.sensitivity
    assert np.allclose(domain.decode(packed[0]), domain.decode(packed[0]).T)


def test_rows_are_scaled_into_the_ball_and_nan_is_refused() -> None:
    domain = Ball(2, bound=0.5)
    rows = np.array([[3.0, 4.0], [0.1, 0.2], [0.0, 0.0], [1e300, 1e300]])
    assert np.allclose(domain.embed(rows), [[0.3, 0.4], [0.1, 0.2], [0.0, 0.0], [0.5**1.5, 0.5**1.5]])
    with pytest.raises(InvalidInput, match="finite"):
        domain.embed(np.array([[np.nan, 0.0]]))
    with pytest.raises(InvalidInput, match="shape"):
        domain.embed(np.zeros((3, 3)))
