"""The documents name each key that campaigns may have.

A table records every key that its reader requests, also keys that the file lacks. So the test gets the keys by reading
all campaigns of the project, and a script with each verb and condition.
"""

import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.campaign.parser import load
from orchestrator.campaign.steps import CONDITIONS, FORMS, StepParser
from systems.errors import InputError
from systems.toml_tables import Table, TomlSource

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "client": ("campaigns.md", "workloads.md"),
    "workload": ("campaigns.md", "workloads.md"),
    "nemesis.step": ("campaigns.md", "faults.md"),
}
"""The pages with the keys of those tables that have more than `campaigns.md`."""
FREE: Final = r"(cell\.)?(broker|controller|member|zookeeper).*|.*\b(settings|topic_settings|where|options|roles)"
"""Tables whose keys are settings and names that a user chooses."""


def _steps() -> None:
    """A script with each word, and with each condition of `wait`."""
    lines = [f'{{ do = "{word}", node = "n1", between = ["n1", "n2"], partition = 0 }}' for word in sorted(FORMS)]
    lines += [f'{{ do = "wait", {name} = 0, node = "n1" }}' for name in CONDITIONS]
    lines += ['{ do = "heal", node = "n1" }', '{ do = "join", node = "n1", partition = 0, starts_at = "log-start" }']
    source = TomlSource("campaign", f"[nemesis]\nstep = [{', '.join(lines)}]")
    with contextlib.suppress(InputError), source.telling_all():
        StepParser(2, 1, {}).parse(source.root().table("nemesis").tables("step"))


def _keys(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, set[str]]:
    """The keys of each table, by its name with dots; of all tables of a list together."""
    tables: list[Table] = []
    made = Table.__init__

    def record(self: Table, *arguments: Any) -> None:
        made(self, *arguments)
        tables.append(self)

    monkeypatch.setattr(Table, "__init__", record)
    for path in sorted((ROOT / "campaigns").rglob("*.toml")):
        load(path)
    _steps()
    found: dict[str, set[str]] = defaultdict(set)
    for table in tables:
        if Path(table.source.name).name != "system.toml":
            name = ".".join(part for part in table.path if isinstance(part, str))
            found[name] |= table._asked
    return {name: keys for name, keys in found.items() if not re.fullmatch(FREE, name)}


def _documented(page: str) -> set[str]:
    """The words in the page's code."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`[^`\n]+`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    return {word for code in (*blocks, *spans) for word in re.findall(r"[a-z][a-z0-9_]*", code)}


def test_each_key_of_a_campaign_is_in_its_document(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _keys(monkeypatch)
    assert {"topology", "workload", "nemesis", "nemesis.step", "checks", "seeds", "swarm", "cell.expect"} <= set(found)
    assert {"as", "tear", "between", "one_way", "starts_at", "at_least", "until_ok", "log_end"} <= found["nemesis.step"]
    missing = []
    for table, keys in found.items():
        pages = PAGES.get(table.removeprefix("cell."), ("campaigns.md",))
        known = set.union(*map(_documented, pages))
        missing += [f"[{table}] {key}: not in docs/{' or docs/'.join(pages)}" for key in sorted(keys - known)]
    assert not missing, "\n".join(missing)
