"""`brownout mutants`: the broker's deliberate bugs, and what each is good for."""

from __future__ import annotations

import json


def main(*, as_json: bool) -> int:
    """Print the table of mutants."""
    from systems.brownout.broker import Brownout

    mutants = Brownout.mutants.values()
    rows = [{"name": m.name, "rule": m.rule, "anomaly": m.anomaly, "schedule": m.schedule} for m in mutants]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        from orchestrator.command.printing import show

        show("mutants", rows, ("name", "rule", "anomaly", "schedule"))
    return 0
