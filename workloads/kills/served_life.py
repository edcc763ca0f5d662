"""`tacit serve` as it is, on a store that is tapped, until it is killed."""

from __future__ import annotations

from pathlib import Path

from tacit.service.http import server
from tacit.service.http.options import Options
from workloads.kills.lives import Spec
from workloads.kills.mutants import broken
from workloads.kills.tapped import Tap, take_snapshots_often, tapped


def live(spec: Spec) -> None:
    """Serve, and say so when it is ready."""
    folder = Path(spec.folder)
    take_snapshots_often()
    kind = tapped(Tap(folder, spec.life, spec.aim), broken(spec.mutant))
    server.SQLiteStore = kind  # type: ignore[attr-defined]
    server.serve(Options(data=str(folder / "store"), port=spec.port, log_requests=False))
