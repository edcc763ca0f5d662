"""Shared fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TACIT_COMPILE", "now")  # before anything is imported that has kernels


@pytest.fixture(autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tokens of resumed states go to a folder of the test's own."""
    folder = tmp_path_factory.mktemp("registry")
    monkeypatch.setenv("TACIT_STATE_DIR", str(folder))
    return folder
