"""`brownout schema`: prints the JSON Schema of a campaign, of gate.toml or of system.toml, for editors.

The schema is made from the structs that the readers of these files use. Editors of TOML check and complete with it.
What it cannot express, the reader checks besides: how keys fit each other, the system and the cluster.
"""

import argparse
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import systems.registry as registry
from analysis.evidence.run_toml import OWN_CLASS, Checks
from analysis.verdict import FAIL, PASS, UNKNOWN, Expectation
from nemeses import INJECTED_BY
from nemeses import KINDS as KINDS_OF_FAULT
from orchestrator.campaign import model
from orchestrator.campaign.expect_table import COMES_WITH, EXPECT_WORDS
from orchestrator.campaign.parser import CHECKS_WORDS
from orchestrator.campaign.steps import CONDITIONS, FORMS, WaitKeys, keys_of_wait
from orchestrator.campaign.workload_parser import WORKLOAD_WORDS
from orchestrator.command.shared.declaration import Command
from orchestrator.errors import EXIT_PASS
from orchestrator.gate.policy_file import Policy
from systems.declared_tables import schema
from systems.description import Description
from workloads.kind import OWN, LoadKeys, Workload, WorkloadKind
from workloads.kinds import KINDS
from workloads.objects import OBJECTS

Schema = dict[str, Any]
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_OPEN: Final[Schema] = {"additionalProperties": True}
_VALUE: Final = {"type": ["string", "number", "boolean"]}
_ROLE: Final[Schema] = {
    "type": "object",
    "description": "Settings of all nodes of this role; a table of a node, such as [broker.n1], overrides them.",
    "additionalProperties": {"anyOf": [_VALUE, {"type": "object", "additionalProperties": _VALUE}]},
}


def file_schema(file: str) -> Schema:
    """`file`: campaign, gate (gate.toml) or system (system.toml)."""
    match file:
        case "gate":
            return {"$schema": _DRAFT, "title": "a policy of the gate, gate.toml", **schema(Policy)}
        case "system":
            return {"$schema": _DRAFT, "title": "a description of a system, system.toml", **schema(Description)}
    return campaign_schema()


def campaign_schema() -> Schema:
    """Of a campaign's file."""
    tables: Schema = {
        "topology": schema(model.Topology),
        "system": schema(model.SystemKeys),
        "workload": _workloads(),
        "client": schema(model.ClientKeys),
        "nemesis": _by_word(
            "kind",
            "none",
            {"random": _random(), "schedule": _schedule(), "steps": _steps(), "none": _closed({})},
        ),
        "checks": schema(Checks, CHECKS_WORDS),
        "seeds": schema(model.Seeds),
        "swarm": schema(model.Swarm),
        "cell": {"type": "array", "items": _cell()},
    }
    top = schema(model.CampaignKeys)
    properties = top["properties"] | tables
    roles = {role for name in registry.known() for role in registry.load_system(name).description.roles}
    names = {"enum": sorted(roles | properties.keys())}
    cell_names = {"enum": sorted(roles | tables["cell"]["items"]["properties"].keys())}
    required = schema(Checks, {"required_faults": KINDS_OF_FAULT})["properties"]["required_faults"]
    built_in = {
        "if": {"not": {"properties": {"nemesis": {"required": ["kinds"]}}, "required": ["nemesis"]}},
        "then": {"properties": {"checks": {"properties": {"required_faults": required}}}},
    }
    ours = {"properties": {"system": {"properties": {"name": {"enum": sorted(registry.known())}}}}}
    return top | {
        "$schema": _DRAFT,
        "title": "a campaign of Brownout",
        "properties": properties,
        "additionalProperties": _ROLE,
        "allOf": [built_in],
        "if": {"properties": {"system": {"required": ["path"]}}, "required": ["system"]},
        "else": {
            "propertyNames": names,
            "properties": ours["properties"] | {"cell": {"items": {"propertyNames": cell_names}}},
        },
    }


def _workloads() -> Schema:
    """By the kind. A class has keys that only it knows."""
    kinds = {name: _workload(kind) for name, kind in KINDS.items() if name in WORKLOAD_WORDS["kind"]}
    of_class = _workload(KINDS[OWN]) | _OPEN
    table = _by_word("kind", LoadKeys().kind, kinds | dict.fromkeys(OBJECTS, of_class))
    is_own = {"pattern": OWN_CLASS}
    for_class = {"if": {"properties": {"kind": is_own}, "required": ["kind"]}, "then": of_class}
    kind = {"type": "string", "anyOf": [{"enum": table["properties"]["kind"]["enum"]}, is_own]}
    return table | {"properties": {"kind": kind}, "allOf": [*table["allOf"], for_class]}


def _workload(kind: WorkloadKind) -> Schema:
    parameters = {
        parameter.key: {
            **parameter.shape,
            "default": parameter.default,
            "description": f"{parameter.meaning} {parameter.unit}".strip(),
        }
        for parameter in kind.parameters
    }
    return _closed(schema(Workload if kind.partitioned else LoadKeys)["properties"] | parameters)


def _random() -> Schema:
    form = schema(model.RandomFaults)
    named = {key: form["properties"][key] | {"items": {"type": "string"}} for key in ("faults", "optional_faults")}
    return _with_own_kinds(form["properties"], form["properties"] | named, form["required"])


def _schedule() -> Schema:
    fault = schema(model.ScheduledFault, {"fault": KINDS_OF_FAULT})
    own_fault = fault | {"properties": fault["properties"] | {"fault": {"type": "string"}}}
    keys = schema(model.ScheduledFaults)["properties"]
    built_in, own = ({"fault": {"type": "array", "minItems": 1, "items": items}} for items in (fault, own_fault))
    return _with_own_kinds(keys | built_in, keys | own, ["fault"])


def _steps() -> Schema:
    forms = {do: _wait() if do == "wait" else _step(do) for do in FORMS}
    step = _by_word("do", None, forms)
    own_step = {
        "if": {"properties": {"do": {"enum": sorted(FORMS)}}},
        "then": step,
        "else": {"required": ["do", "node"]},
    }
    kinds = schema(model.OwnFaultKinds)["properties"]
    built_in, own = ({"step": {"type": "array", "minItems": 1, "items": items}} for items in (step, own_step))
    return _with_own_kinds(kinds | built_in, kinds | own, ["step"])


def _with_own_kinds(built_in: Schema, for_class: Schema, needed: Collection[str]) -> Schema:
    """A table with own kinds of fault, whose names no schema knows, or without them.

    `built_in`, `for_class`: the keys of both."""
    return {
        "oneOf": [_closed(_only(built_in, built_in.keys() - {"kinds"}), needed), _closed(for_class, [*needed, "kinds"])]
    }


def _step(word: str) -> Schema:
    form = schema(FORMS[word])
    faults = INJECTED_BY[word].parameters if word in INJECTED_BY and INJECTED_BY[word].takes == "node" else ()
    parameters = {
        parameter.name: parameter.shape | {"description": parameter.meaning} for parameter in faults if parameter.shape
    }
    needed = [parameter.name for parameter in faults if getattr(parameter, "default", 0) is None]
    needed += ["as"] if word == "name" else []
    return _closed(form["properties"] | parameters, [*form["required"], *needed])


def _wait() -> Schema:
    """One condition with its keys."""
    form = schema(WaitKeys)
    key_sets = [keys_of_wait(condition) for condition in CONDITIONS]
    return {"oneOf": [_closed(_only(form["properties"], keys), set(form["required"]) & keys) for keys in key_sets]}


def _cell() -> Schema:
    form, expect = schema(model.CellKeys), schema(Expectation, EXPECT_WORDS)["properties"]
    for shape in (expect["anomaly"], expect["may_show"]["items"]):  # the campaign's own checkers have further names
        shape["anyOf"] = [{"enum": shape.pop("enum")}, {"pattern": "."}]
    allowed = {
        verdict: [key for key, outcome in COMES_WITH.items() if outcome == verdict] for verdict in (PASS, FAIL, UNKNOWN)
    }
    needed = {PASS: [], FAIL: ["anomaly"], UNKNOWN: ["reason"]}
    outcomes = {verdict: _closed(_only(expect, keys), needed[verdict]) for verdict, keys in allowed.items()}
    tables = {
        "expect": _by_word("verdict", PASS, outcomes),
        "client": _closed(_only(schema(model.ClientKeys)["properties"], ["options"])),
    }
    return form | {"properties": form["properties"] | tables, "additionalProperties": _ROLE}


def _by_word(key: str, default: str | None, branches: Mapping[str, Schema]) -> Schema:
    """A table whose keys depend on the word in one key. `default`: the word of a table without this key."""
    alike = [[name for name in branches if branches[name] == branch] for branch in branches.values()]
    groups = {names[0]: names for names in alike}
    return {
        "type": "object",
        "properties": {key: {"type": "string", "enum": sorted(branches)}},
        "required": [] if default else [key],
        "allOf": [
            {
                "if": {"properties": {key: {"enum": names}}, "required": [] if default in names else [key]},
                "then": _with_key(branches[representative], key),
            }
            for representative, names in groups.items()
        ],
    }


def _with_key(branch: Schema, key: str) -> Schema:
    """A closed table, or a choice of them, that may have this key, too."""
    if "oneOf" in branch:
        return {"oneOf": [_with_key(choice, key) for choice in branch["oneOf"]]}
    return branch | {"properties": {key: {}} | branch["properties"]}


def _closed(properties: Schema, needed: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(needed),
        "additionalProperties": False,
    }


def _only(properties: Schema, keys: Collection[str]) -> Schema:
    return {key: shape for key, shape in properties.items() if key in keys}


FILES: Final = ("campaign", "gate", "system")


def main(options: argparse.Namespace) -> int:
    """Print the schema."""

    print(json.dumps(file_schema(options.file), indent=1))
    return EXIT_PASS


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", choices=FILES, default=FILES[0], metavar="FILE", help=f"one of {', '.join(FILES)} (campaign)"
    )


COMMAND: Final = Command(
    name="schema",
    place=132,
    summary="print the JSON Schema of a campaign, of gate.toml or of system.toml",
    description="""\
Prints the JSON Schema (draft 7) of a campaign's file, of a policy (gate) or of a system's description (system). An
editor of TOML that knows it completes keys, shows their meaning and marks wrong ones while you write.

  brownout schema > campaign.schema.json
  brownout schema gate > gate.schema.json

Editors with Taplo (such as "Even Better TOML" of VS Code) use it for a file whose first line is

  #:schema ./campaign.schema.json

The schema knows each key alone. `brownout run FILE --dry-run` also checks how keys fit each other and the system.
""",
    options=_options,
    main=main,
)
