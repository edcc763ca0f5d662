"""Where Python raises an error and machine code gives an infinity, both forms of a kernel could part: they do not."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tacit._compile import as_entry
from tacit.glm import link_kernels
from tacit.glm.links import LINKS, LinkForm

ROOT = Path(__file__).parents[2]
EXTREMES = [0.0, -0.0, 1e-300, 37.5, 100.0, 700.0, 709.9, 745.2, 800.0, 1e5, 1e308, math.inf, math.nan]
SCORES = [sign * z for z in EXTREMES for sign in (1.0, -1.0)] + list(np.random.default_rng(3).normal(0.0, 8.0, 500))


def outcome(function: Callable[[LinkForm, float], float], form: LinkForm, z: float) -> bytes | str:
    try:
        value = float(function(form, z))
    except ArithmeticError as error:
        return type(error).__name__
    return "nan" if math.isnan(value) else struct.pack("d", value)


@pytest.mark.parametrize("offset", [0.0, -2.44, 0.7])
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("function", [link_kernels.mean, link_kernels.derivative, link_kernels.antiderivative])
def test_links_agree_at_every_score(name: str, offset: float, function: Callable[[LinkForm, float], float]) -> None:
    form, compiled = LinkForm(LINKS[name].code, offset), as_entry(function)
    for z in SCORES:
        assert outcome(function, form, float(z)) == outcome(compiled.now, form, float(z)), z


def test_interpreted_policies_survive_arbitrary_calls() -> None:
    """The fuzzing that compiled policies undergo in tests/audit/test_fuzz.py."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "tests/audit/test_fuzz.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"TACIT_COMPILE": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "passed" in done.stdout
