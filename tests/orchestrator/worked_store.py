"""The store of the questions in docs/tables.md: two cells, one with a mutant, and latencies that a fault raises."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.analysis_pipeline.stored_run import MS, Clock
from tests.orchestrator.stored_campaign import PAPER, StoredCampaign, ask

CELLS: Final = """
[seeds]
count = 2
[[cell]]
name = "main"
[[cell]]
name = "hasty"
mutants = ["early-ack"]
[cell.expect]
verdict = "fail"
anomaly = "lost-acknowledged-write"
must_hold = ["no-two-leaders"]
"""
HAS_MUTANT: Final = "from brownout_api import System\n\n\nclass Paper(System):\n    mutants = {'early-ack': ''}\n"
_APPEND: Final = 3 * MS
_FAULT: Final = 50 * MS


@dataclass
class SlowClock(Clock):
    """An append takes `append_ms` by this clock, and after a fault three times as long for two seconds."""

    append_ms: int = 100
    _after_fault: int = field(default=0, init=False)

    def __setattr__(self, name: str, value: int) -> None:
        passed = value - getattr(self, name, value)
        if name == "now" and passed == _FAULT:
            self._after_fault = value + 2_000 * MS
        if name == "now" and passed == _APPEND:
            is_slow = self.now < self._after_fault
            value = self.now + self.append_ms * MS * (3 if is_slow else 1)
        super().__setattr__(name, value)


def make(directory: Path) -> Path:
    """Makes the store below the directory, decided by the gate."""
    system = directory / "campaigns" / "paper"
    system.mkdir(parents=True)
    (system / "paper.py").write_text(HAS_MUTANT)
    campaign = StoredCampaign(
        directory / "store", CELLS, system=PAPER.replace("[promises]", 'class = "paper.py:Paper"\n[promises]')
    )
    for planned in campaign.plan():
        is_hasty = planned.cell.name == "hasty"
        campaign.make(
            planned,
            clock=SlowClock(append_ms=150 if is_hasty else 100 + 10 * planned.seed),
            lost=9 if is_hasty else None,
            diverging="n3" if is_hasty and planned.seed == 2 else None,
        )
    ask("gate", campaign.path)
    return campaign.store
