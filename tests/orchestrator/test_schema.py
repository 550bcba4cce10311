"""The JSON Schemas of files: each accepts what its reader accepts, and both refuse a mistake in any single key."""

import copy
import functools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from jsonschema import Draft7Validator

from docs.generators.keys import DOCS, PAGES, page
from nemeses import INJECTED_BY
from orchestrator.campaign.parser import parse
from orchestrator.campaign.steps import CONDITIONS, FORMS, NODE_WORDS, keys_of_wait
from orchestrator.campaign.toml_text import dump
from orchestrator.campaign.workload_parser import WORKLOAD_WORDS
from orchestrator.command.line import main
from orchestrator.command.schema import file_schema
from orchestrator.gate.policy_file import Policy
from systems.declared_tables import read_file
from systems.description import Description, read
from systems.errors import InputError
from systems.toml_tables import TomlSource
from workloads.kinds import KINDS

ROOT: Final = Path(__file__).resolve().parents[2]
SCHEMAS: Final = {file: file_schema(file) for file in ("campaign", "gate", "system")}
SCHEMA: Final = SCHEMAS["campaign"]
TABLES: Final = SCHEMA["properties"].keys() - {"name", "description"}
OWN_CLIENT: Final = "append-log"
WRONG_VALUES: Final[tuple[Any, ...]] = (True, -7, 10**12, 0.5, "no such word", "", [3], ["no such"], [9, 2], {"a": 1})


def errors(document: Mapping[str, Any], file: str = "campaign") -> list[str]:
    """To editors a date is a text."""
    instance = json.loads(json.dumps(document, default=str))
    found = Draft7Validator(SCHEMAS[file]).iter_errors(instance)
    return [f"{list(each.absolute_path)}: {each.message}" for each in found]


READERS: Final[Mapping[str, Callable[[TomlSource], Any]]] = {
    "campaign": lambda source: parse(source, ROOT / "campaigns" / "x.toml"),
    "gate": lambda source: read_file(source, Policy, lambda _: (), path=ROOT),
    "system": lambda source: read_file(source, Description, lambda _: (), directory=ROOT),
}


def refusal(document: Mapping[str, Any], file: str = "campaign") -> str:
    """What the reader says about a document; empty if it accepts it."""
    try:
        READERS[file](TomlSource("c.toml", dump(document)))
    except InputError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", autouse=True)
def _one_reading_of_each_system() -> Iterator[None]:
    """Thousands of campaigns are parsed here, all of them of systems whose descriptions do not change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("systems.registry.read", functools.cache(read))
        yield


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_schema_is_one_of_draft_7(file: str) -> None:
    Draft7Validator.check_schema(SCHEMAS[file])


@pytest.mark.parametrize("path", sorted((ROOT / "systems").glob("*/system.toml")), ids=lambda path: path.parent.name)
def test_the_schema_accepts_the_systems_of_the_project(path: Path) -> None:
    assert errors(tomllib.loads(path.read_text(encoding="utf-8")), "system") == []


@pytest.mark.parametrize("path", sorted((ROOT / "campaigns").rglob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_accepts_the_campaigns_of_the_project(path: Path) -> None:
    assert errors(tomllib.loads(path.read_text(encoding="utf-8"))) == []


def _examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """The campaigns and parts of campaigns in the documents."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        blocks = re.findall(r"^```toml.*?\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for number, text in enumerate(blocks):
            content = tomllib.loads(text)
            is_campaign = TABLES & content.keys() and not {"title", "require", "known"} & content.keys()
            if is_campaign:
                own = {"system": {"path": "my-tests"}} if path.stem == "your-system" else {}
                yield f"{path.stem}-{number}", {"name": "x", **own, **content}


EXAMPLES: Final = dict(_examples())


def test_the_documents_have_examples() -> None:
    assert len(EXAMPLES) > 9


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_schema_accepts_the_examples_of_the_documents(example: str) -> None:
    assert errors(EXAMPLES[example]) == []


class Key(NamedTuple):
    """A key of a document that is valid without it, or with another value of it; `path` leads to its table."""

    document: dict[str, Any]
    path: tuple[str | int, ...]
    key: str

    def having(self, value: Any) -> dict[str, Any]:
        changed = copy.deepcopy(self.document)
        table: Any = changed
        for part in self.path:
            table = table[part]
        table[self.key] = value
        return changed


def _properties(document: dict[str, Any], path: tuple[str | int, ...], file: str) -> Iterator[str]:
    """The keys that the schema allows in the table of a document at this path."""
    found = set[str]()
    validator = Draft7Validator({})

    def collect(schema: Any, instance: Any, rest: tuple[str | int, ...]) -> None:
        if not rest:
            found.update(schema.get("properties", {}))
        elif isinstance(rest[0], int) and "items" in schema:
            collect(schema["items"], instance[rest[0]], rest[1:])
        elif rest[0] in schema.get("properties", {}):
            collect(schema["properties"][rest[0]], instance[rest[0]], rest[1:])
        elif isinstance(schema.get("additionalProperties"), dict):
            collect(schema["additionalProperties"], instance[rest[0]], rest[1:])
        for part in schema.get("allOf", ()):
            if validator.evolve(schema=part["if"]).is_valid(instance):
                collect(part["then"], instance, rest)
        for part in schema.get("oneOf", ()):
            if validator.evolve(schema=part).is_valid(instance):
                collect(part, instance, rest)

    collect(SCHEMAS[file], document, path)
    yield from sorted(found)


def _documents() -> Iterator[tuple[str, dict[str, Any], tuple[str | int, ...]]]:
    """Valid documents, each with the path of a table in it. The name starts with the file, if it is no campaign."""
    known = {"anomaly": "duplicate", "reason": "x", "expires": date(2030, 1, 1)}
    policy: dict[str, Any] = {"require": {}, "budget": {}, "baseline": {"path": "."}, "known": [known]}
    for path in ((), ("require",), ("budget",), ("baseline",), ("known", 0)):
        yield f"gate {path}", policy, path
    role = {"ports": {"client": 1}, "command": ["a"]}
    system: dict[str, Any] = {"name": "x", "workloads": ["register"], "roles": {"server": role}}
    system |= {table: {} for table in ("promises", "client", "settings", "collect", "log", "machine")}
    for place in ((), ("roles", "server"), *((table,) for table in system if system[table] == {})):
        yield f"system {place}", system, place
    base: dict[str, Any] = {"name": "x"}
    yield "campaign", base, ()
    for table in ("topology", "system", "checks", "seeds"):
        yield table, base | {table: {}}, (table,)
    for name in WORKLOAD_WORDS["kind"] & KINDS.keys():
        kind = KINDS[name]
        client = {"client": {"client_class": "m:C"}} if kind.own_client else {}
        yield f"workload {name}", base | {"workload": {"kind": name}} | client, ("workload",)
    own = base | {"workload": {"kind": OWN_CLIENT}, "client": {"client_class": "m:C"}}
    yield "client", own, ("client",)
    random = {"kind": "random", "faults": ["kill"]}
    yield "random", base | {"nemesis": random}, ("nemesis",)
    moment = {"fault": "kill", "at_s": 1, "duration_s": 1}
    scheduled = base | {"nemesis": {"kind": "schedule", "fault": [moment]}}
    yield "schedule", scheduled, ("nemesis",)
    yield "moment", scheduled, ("nemesis", "fault", 0)
    swarm = {"topology": {"nodes": 7, "world": "simulation"}, "nemesis": random, "swarm": {}}
    yield "swarm", base | swarm, ("swarm",)
    yield "cell", base | {"cell": [{"name": "a"}]}, ("cell", 0)
    for verdict, needed in (
        ("pass", {}),
        ("fail", {"anomaly": "duplicate"}),
        ("unknown", {"reason": "too-few-changes"}),
    ):
        cell = {"name": "a", "expect": {"verdict": verdict, **needed}}
        yield f"expect {verdict}", base | {"cell": [cell]}, ("cell", 0, "expect")
    cell = {"name": "a", "client": {"options": {}}}
    yield "cell client", own | {"cell": [cell]}, ("cell", 0, "client")
    for name, step in _scripts():
        checks = {"checks": {"upper_bound": "session"}}
        yield name, base | checks | {"nemesis": {"kind": "steps", "step": [step]}}, ("nemesis", "step", 0)


def _scripts() -> Iterator[tuple[str, dict[str, Any]]]:
    values: dict[str, Any] = {
        "leader": "n1",
        "isr": ["n1"],
        "offline": 0,
        "in_sync": 0,
        "controller": "n1",
        "fenced": "n1",
        "unfenced": "n1",
        "offset": "log-start",
        "at_least": 0,
        "event": "truncated",
        "checkpoint": 0,
        "log": "x",
        "log_end": 0,
        "seconds": 1,
        "node": "n1",
        "partition": 0,
        "where": {"partition": 0},
    }
    for condition in CONDITIONS:
        keys = keys_of_wait(condition) - {"do", "deadline_s", "why"}
        yield f"wait {condition}", {"do": "wait"} | {key: values[key] for key in sorted(keys)}
    for word in FORMS.keys() - {"wait"}:
        step: dict[str, Any] = {"do": word}
        if word in NODE_WORDS or word == "join":
            step["node"] = "n1"
        elif word in ("cut", "reject"):
            step["between"] = ["n1", "n2"]
        step |= {"partition": 0} if word == "elect" else {}
        step |= {"command": ["promote"]} if word == "run" else {}
        step |= {"as": "A"} if word == "name" else {}
        step |= {"settings": {"retention.ms": 1}} if word == "configure" else {}
        step |= {"offset": 1} if word == "delete-records" else {}
        for each in INJECTED_BY[word].parameters if word in INJECTED_BY else ():
            if getattr(each, "default", 0) is None:
                step[each.name] = each.least  # type: ignore[union-attr]
        yield word, step


DOCUMENTS: Final = {name: (document, path) for name, document, path in sorted(_documents(), key=lambda each: each[0])}


def file_of(name: str) -> str:
    word = name.partition(" ")[0]
    return word if word in SCHEMAS and name not in SCHEMA["properties"] else "campaign"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_reader_and_schema_accept_the_same_documents(name: str) -> None:
    document, _ = DOCUMENTS[name]
    assert errors(document, file_of(name)) == []
    assert refusal(document, file_of(name)) == ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_reader_names_line_and_key_of_each_value_that_the_schema_refuses(name: str) -> None:
    document, path = DOCUMENTS[name]
    file = file_of(name)
    keys = [key for key in _properties(document, path, file) if path or file != "campaign" or key not in TABLES]
    assert keys
    for key in keys:
        refused = 0
        for value in WRONG_VALUES:
            changed = Key(document, path, key).having(value)
            if not errors(changed, file):
                continue
            refused += 1
            source = TomlSource("c.toml", dump(changed))
            lines = {source.line((*path, key, *inner)) for inner in ((), value if isinstance(value, dict) else ())}
            assert re.search(rf"c\.toml:({'|'.join(map(str, lines))}): .*{key}", refusal(changed, file)), (key, value)
        assert refused > 3, f"{key} takes nearly anything"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_unknown_key_is_refused_by_reader_and_schema(name: str) -> None:
    document, path = DOCUMENTS[name]
    changed = Key(document, path, "nodees").having(3)
    assert errors(changed, file_of(name))
    assert "nodees" in refusal(changed, file_of(name))


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        (
            "gate",
            '[require]\nseeds = 0\nfaults = { kill = 0, kil = 1 }\n[[known]]\nreson = "x"\n',
            [2, 3, 3, 4, 4, 4, 5],
        ),
        ("system", 'nme = "x"\nworkloads = []\n[roles.a]\nports = { c = 0 }\ncomand = ["a"]\n', [1, 1, 2, 3, 4, 5]),
    ],
)
def test_all_mistakes_of_a_file_are_reported_at_once(file: str, text: str, lines: list[int]) -> None:
    with pytest.raises(InputError) as caught:
        READERS[file](TomlSource("c.toml", text))
    assert [int(line) for line in re.findall(r"^  c\.toml:(\d+): ", str(caught.value), re.MULTILINE)] == lines


def test_a_system_of_the_users_may_have_roles_that_the_schema_does_not_know() -> None:
    role = {"server": {"port.count": 3}}
    assert errors({"name": "x", **role})
    assert errors({"name": "x", "system": {"path": "my-system"}, **role, "cell": [{"name": "a", **role}]}) == []
    assert errors({"name": "x", "broker": {"min.insync.replicas": [2]}})


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    for file in SCHEMAS:
        assert main(["schema", file]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMAS[file]))
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(SCHEMA))
    assert "acknowledged within this time" in printed["properties"]["checks"]["properties"]["progress_s"]["description"]


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == page(name), "write it with: .venv/bin/python -m docs.generators.keys"
