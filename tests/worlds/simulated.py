"""Runs of the simulated world, made by the user's command, and their files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.verdict import VERDICT_FILE, Verdict
from history.journal.writer import FILE_NAME
from orchestrator.command.line import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SimulatedRun:
    """One run in a store."""

    path: Path

    @property
    def verdict(self) -> Verdict:
        return Verdict.read(self.path / VERDICT_FILE)

    @property
    def anomalies(self) -> set[str]:
        return {anomaly.name for anomaly in self.verdict.anomalies}

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.path / "simulation.json").read_text())
        return summary

    @property
    def journal(self) -> list[dict[str, Any]]:
        lines = (self.path / "history" / FILE_NAME).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The journal's lines of one event."""
        return [line for line in self.journal if line["event"] == event]


def campaign(name: str) -> Path:
    """One of Brownout's own."""
    (path,) = (ROOT / "campaigns").rglob(f"{name}.toml")
    return path


def simulate(path: Path, store: Path, *more: str, cell: str | None = None, seeds: Sequence[int] = ()) -> SimulatedRun:
    """Make one run; the newest in the store."""
    chosen = ["--cell", cell] if cell else []
    chosen += [word for seed in seeds for word in ("--seed", str(seed))]
    main(["run", str(path), "--world", "simulation", "--quiet", "--store", str(store), *chosen, *more])
    return SimulatedRun((store / "latest").resolve())
