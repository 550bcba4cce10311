"""Kinds of fault of a user's own: only evidence confirms them, and errors of the user's code have file and line."""

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from history.damage import Damage
from history.own_classes import OwnClassError
from installation.files import PROJECT_ROOT
from nemeses import KINDS, Evidence, Fault, Nemesis, RandomDraw, Site
from nemeses.own_kind import FaultKind, OwnKind, TargetNode, own_kind
from tests.nemeses.fakes import FakeHost, lines

USE = "rules.py:Block"
RULE = """\
from brownout_api import FaultKind, Parameter

class Block(FaultKind):
    name = "block"
    text = "a rule blocks its port"
    {declared}

    def inject(self, node):
        node.run("add")

    def evidence(self, node):
        return node.run("list").stdout

    def heal(self, node):
        node.run("delete")
"""
FAULT = Fault("block", ("n1",), parameters={"duration_s": 1.0})


def source(declared: str = "", change: Callable[[str], str] = str) -> str:
    return change(RULE.format(declared=declared))


def kind_of(text: str) -> OwnKind:
    return own_kind(USE, text, 0, KINDS.keys())


class Firewall:
    """The rules of a host. `broken`: commands without an effect."""

    def __init__(self, *broken: str) -> None:
        self.rules: list[str] = []
        self._broken = broken

    def answer(self, command: str) -> str:
        if command in self._broken:
            return ""
        if command == "add":
            self.rules.append("rule 1")
        if command == "delete":
            self.rules.clear()
        return "\n".join(self.rules) if command == "list" else lines(port="open")


def nemesis(text: str, firewall: Firewall | None = None) -> tuple[Nemesis, FakeHost]:
    host = FakeHost("n1", (firewall or Firewall()).answer)
    kind = kind_of(text)
    return Nemesis(Site({"n1": host}), {**KINDS, kind.name: kind}), host


def both(text: str, firewall: Firewall | None = None) -> tuple[Evidence, Evidence]:
    """The evidence of a fault and of its heal."""
    injecting, _ = nemesis(text, firewall)
    return injecting.inject(FAULT), injecting.heal(FAULT)


def test_a_fault_with_evidence_is_confirmed_and_healed_without_it() -> None:
    seen, healed = both(source())
    assert (seen.status, seen.detail) == ("confirmed", {"n1": {"evidence": "rule 1"}})
    assert (healed.status, healed.detail) == ("confirmed", {"n1": {"evidence": ""}})


BROKEN = {
    "no effect": (source(), Firewall("add"), ("mismatch", "confirmed"), "shows nothing of the fault"),
    "evidence that is lost": (source(), Firewall("list"), ("mismatch", "confirmed"), "shows nothing of the fault"),
    "a heal without an effect": (source(), Firewall("delete"), ("confirmed", "mismatch"), "still is evidence: rule 1"),
    "evidence that is always there": (
        source(change=lambda text: text.replace('node.run("list").stdout', '"it is there"')),
        Firewall(),
        ("confirmed", "mismatch"),
        "still is evidence: it is there",
    ),
    "an exception": (
        source(change=lambda text: text.replace('node.run("add")', "node.add()")),
        Firewall(),
        ("inconclusive", "confirmed"),
        "rules.py:9: AttributeError: 'TargetNode' object has no attribute 'add'",
    ),
    "an exception of the heal": (
        source(change=lambda text: text.replace('node.run("delete")', "[][1]")),
        Firewall(),
        ("confirmed", "inconclusive"),
        "rules.py:15: IndexError: ",
    ),
    "evidence that is no text": (
        source(change=lambda text: text.replace('node.run("list").stdout', "True")),
        Firewall(),
        ("inconclusive", "inconclusive"),
        "evidence() returned True; return a text, or None",
    ),
    "a call that does not end": (
        source("limit_s = 0.01", lambda text: text.replace('node.run("add")', "import time; time.sleep(1)")),
        Firewall(),
        ("inconclusive", "confirmed"),
        "inject() did not return within 0.01 s",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_fault_or_heal_without_evidence_is_not_confirmed(broken: str) -> None:
    text, firewall, statuses, message = BROKEN[broken]
    evidence = both(text, firewall)
    assert tuple(each.status for each in evidence) == statuses
    assert any(message in each.cause for each in evidence)


def test_a_command_with_another_exit_code_has_the_line_that_ran_it() -> None:
    injecting, host = nemesis(source())
    run = host.run
    host.run = lambda command, **more: _failed(run(command, **more), command)  # type: ignore[method-assign]
    assert injecting.inject(FAULT).cause == "n1: rules.py:9: HostError: n1: exit code 3: no such rule"


def _failed(result: Any, command: str) -> Any:
    return type(result)(3, "", "no such rule\n") if command == "add" else result


def test_faults_of_a_killed_run_are_healed_on_every_node() -> None:
    firewall = Firewall()
    firewall.rules.append("rule of another run")
    clearing, host = nemesis(source(), firewall)
    assert clearing.clear_leftovers().status == "confirmed"
    assert firewall.rules == []
    assert "delete" in host.commands
    left, _ = nemesis(source(), Firewall("delete"))
    left.inject(FAULT)
    assert left.clear_leftovers().status == "mismatch"


def test_a_fault_that_needs_the_service_is_prevented_without_it() -> None:
    for declared, status in (("", "confirmed"), ("needs_service = True", "prevented")):
        injecting, host = nemesis(source(declared))
        injecting.inject(Fault("kill", ("n1",)))
        host.pid = None
        assert injecting.inject(FAULT).status == status


def test_a_service_that_a_fault_ends_is_started_after_its_heal() -> None:
    injecting, host = nemesis(source("ends_service = True"))
    assert kind_of(source("ends_service = True")).destroys == {"progress", "memory"}
    injecting.inject(FAULT)
    host.pid = None
    healed = injecting.heal(FAULT)
    assert healed.detail["n1"] == {"pid": 43, "port": "open", "evidence": ""}
    assert host.starts == 1


def test_parameters_are_drawn_or_have_their_default_and_the_node_has_them() -> None:
    declared = (
        'parameters = (Parameter("count", "rules", "how many", 1, 8, drawn=(2, 3)),\n'
        '        Parameter("port", "", "which", 1, 65535, default=80))'
    )
    text = source(declared, lambda text: text.replace("node.run", "print(node.parameters); node.run"))
    kind = kind_of(source(declared))
    drawn = kind.draw(RandomDraw(Random(1).random(), "both", None))
    assert 2 <= drawn["count"] <= 3
    assert drawn["port"] == 80
    assert kind_of(text).parameters == kind.fault_class.parameters
    injecting, _ = nemesis(source(declared, lambda text: text.replace('"add"', 'f"add {node.parameters}"')))
    injecting.inject(Fault("block", ("n1",), parameters={"count": 4, "aim": "any"}))
    assert _commands(injecting)[0] == "add {'count': 4, 'port': 80}"


def _commands(injecting: Nemesis) -> list[str]:
    host = injecting._site.hosts["n1"]
    assert isinstance(host, FakeHost)
    return host.commands


def test_each_nemesis_has_an_object_of_its_own() -> None:
    counts = source(
        change=lambda text: text.replace("    def inject", "    count = 0\n    def inject").replace(
            'node.run("add")', 'self.count += 1; node.run("add" if self.count == 1 else "none")'
        )
    )
    kind = kind_of(counts)
    for _ in range(2):
        own = Nemesis(Site({"n1": FakeHost("n1", Firewall().answer)}), {"block": kind})
        assert own.inject(FAULT).status == "confirmed"


WRONG = {
    "a syntax error": ("class Block(:\n", "rules.py:1: "),
    "no such class": ("x = 1\n", "rules.py has no Block"),
    "another base": ("class Block: pass\n", "a kind of fault is a subclass of brownout_api.FaultKind"),
    "no heal": (source(change=lambda text: text.replace("def heal", "def end")), "Block cannot be made"),
    "no name": (source(change=lambda text: text.replace('"block"', "None")), "Block.name: a word in small letters"),
    "a built-in name": (source(change=lambda text: text.replace('"block"', '"kill"')), "'kill' is the name of another"),
    "no text": (source(change=lambda text: text.replace('"a rule blocks its port"', '" "')), "Block.text: a text"),
    "a parameter of another type": (source("parameters = ('count',)"), "Block.parameters: a tuple is needed"),
    "a parameter without a value": (
        source('parameters = (Parameter("count", "", "", 1, 2),)'),
        "count has neither a default nor a range `drawn`",
    ),
    **{
        f"a parameter with {values}": (source(f'parameters = (Parameter("count", "B", "", {values}),)'), message)
        for values, message in {
            "1, 8, default=20": "count: default 20 is not 1 to 8 B",
            "1, 8, drawn=(100, 200)": "count: drawn 100 is not 1 to 8 B",
            "1, 8, drawn=(4, 2)": "count: drawn 4 to 2: two rising numbers above 0",
            "0, 8, drawn=(0, 2)": "count: drawn 0 to 2: two rising numbers above 0",
            "5, 2, default=1": "count: the least value 5 is not 0 to the most, 2",
        }.items()
    },
    "unknown damage": (source("may_destroy = ('moon',)"), "may_destroy: 'moon' is not"),
    "damage as a text": (source("may_destroy = 'progress'"), "may_destroy: 'progress' is not a list of"),
    "no time": (source("limit_s = 0"), "limit_s: seconds are needed"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kind_is_refused_when_it_is_loaded(wrong: str) -> None:
    text, message = WRONG[wrong]
    with pytest.raises(OwnClassError) as refused:
        kind_of(text)
    assert message in str(refused.value)


def test_the_page_names_every_damage_and_attribute() -> None:
    page = (PROJECT_ROOT / "docs/own-faults.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `may_destroy` .*$", page, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", row)) == {*Damage}
    declared = set(FaultKind.__annotations__) | set(TargetNode.__annotations__)
    assert {f"`{name}`" for name in declared} <= set(re.findall(r"`\w+`", page))
