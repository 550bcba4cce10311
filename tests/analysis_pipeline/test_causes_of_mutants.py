"""The causes that pages name in real failing runs: mutants of the broker under their own campaigns, simulated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from analysis.core.anomaly import NOT_SHOWN
from analysis.verdict import Verdict
from orchestrator.command.line import main
from tests.analysis.python_literals import literals_in

pytestmark = pytest.mark.thorough
CAUSES: Final[Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]] = {
    ("kip966-min-isr", "mutated"): {
        "lost-acknowledged-write": (
            "n2 became leader of log-0 in epoch 1",
            "after n1, the leader of epoch 0; its log ended at 3",
            "the in-sync set of log-0 was [n1] at the acknowledgement: record 1.1.3, acknowledged at",
        ),
        "high-watermark-invalid": ("the in-sync set of log-0 is [n1]", "the logs end at 4 on n1, 3 on n2"),
    },
    ("lagging-high-watermark", "tells"): {
        "session-violation": ("the leader of log-0 changed: n3 in epoch 1", "with the high watermark 3")
    },
    ("lagging-high-watermark", "joins"): {
        "member-incomplete": ("n3 leads log-0 in epoch 1", "the logs end at 4 on n1, 4 on n3, 3 on n4")
    },
    ("sequence-unchecked", "mutated"): {
        "duplicate": ("n1 appended", "as the leader of log-0 in epoch 0", "after partition-one n1"),
        "sequence-gap-on-replica": ("n1 appended all these batches",),
    },
    ("lease", "refused-is-dead"): {
        "stale-read": ("n1 took itself for the leader of log-0 in epoch 0", "although n2 led epoch 1 since"),
        "lease-shared": ("n1 took itself for the leader of log-0 in epoch 0", "although n2 led epoch 1 since"),
    },
    ("vote-not-persisted", "mutated"): {
        "vote-not-on-disk": ("n1 voted for n3 in epoch 1 at", "n3 became leader of the metadata quorum in epoch 1")
    },
    ("tiered-uncommitted", "mutated"): {
        "uncommitted-record-in-store": (
            "n4 declared remote segment 200 to 219: copy finished at",
            "n4 truncated log-0 from 400 to 200 at",
        )
    },
    ("wiped-majority", "mutated"): {
        "lost-committed-metadata": ("n2 lost its disk at", "with its records of __cluster_metadata-0"),
        "replica-divergence": ("n1 has epoch 2 there, led by n1 from", "n3 has epoch 1 there, led by n3 from"),
    },
}
"""By campaign and cell, with its first seed: parts of the cause of each anomaly, in their order."""


@pytest.mark.parametrize(("campaign", "cell"), CAUSES, ids=map("-".join, CAUSES))
def test_the_page_of_a_mutant_names_the_cause(tmp_path: Path, campaign: str, cell: str) -> None:
    words = ["run", campaign, "--cell", cell, "--seeds", "1", "--world", "simulation", "--quiet", "--no-plots"]
    assert main([*words, "--store", str(tmp_path)]) == 0
    (path,) = tmp_path.glob(f"{campaign}/*-{cell}-1/verdict.json")
    verdict = Verdict.read(path)
    causes = {each.name: each.cause for each in reversed(verdict.anomalies)}
    for name, parts in CAUSES[campaign, cell].items():
        places = [causes[name].find(part) for part in parts]
        assert -1 not in places, causes[name]
        assert places == sorted(places), causes[name]
    assert not verdict.cause.startswith(NOT_SHOWN)
    assert literals_in(text for each in verdict.anomalies for text in (each.sentence, each.cause)) == []
