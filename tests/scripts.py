"""Scripts of benchmarks/, which is no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def benchmark(name: str) -> Any:
    """The script ``benchmarks/<name>.py``."""
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up the types of their fields
    spec.loader.exec_module(module)
    return module
