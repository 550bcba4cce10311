"""Campaigns: valid files, and the exact messages for invalid ones."""

from pathlib import Path

import pytest

from analysis.verdict import Expectation
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import load
from orchestrator.campaign.steps import CutStep, NodeStep, ProduceStep, WaitStep
from orchestrator.campaign.workload_parser import WORKLOAD_WORDS
from systems import merge
from systems.errors import InputError
from tests.orchestrator.campaigns import campaign

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "campaigns").rglob("*.toml")), ids=lambda path: path.stem)
def test_the_campaigns_of_the_project_are_valid(path: Path) -> None:
    read = load(path)
    assert read.name == path.stem
    assert read.description


def test_omitted_keys_have_a_default() -> None:
    read = campaign("")
    assert isinstance(read, Campaign)
    assert read.topology.names == ("n1", "n2", "n3")
    assert [cell.name for cell in read.cells] == ["main"]
    assert read.cells[0].expect == Expectation("pass")
    assert read.nemesis.kind == "none"


def test_broker_settings_are_laid_on_top_of_each_other() -> None:
    read = campaign(
        '[broker]\n"min.insync.replicas" = 2\n"num.partitions" = 3\n[broker.n2]\n"num.partitions" = 7\n'
        '[[cell]]\nname = "a"\n[cell.broker]\n"min.insync.replicas" = 1\n'
    )
    merged = merge(read.settings, read.cells[0].settings)["broker"]
    assert merged.of("n1") == {"min.insync.replicas": "1", "num.partitions": "3"}
    assert merged.of("n2") == {"min.insync.replicas": "1", "num.partitions": "7"}


def test_a_fleet_names_its_inventory_and_frozen_clocks_need_a_modest_bound() -> None:
    read = campaign('[topology]\nworld = "inventory"\ninventory = "hosts.yml"\n')
    assert (read.topology.world, read.topology.inventory) == ("inventory", "hosts.yml")
    freeze = '[nemesis]\nkind = "random"\nfaults = ["stall", "clock-freeze"]\n'
    assert campaign(freeze + '[checks]\nupper_bound = "session"\n').nemesis.faults == ("stall", "clock-freeze")
    with pytest.raises(InputError, match="clock-freeze"):
        campaign(freeze)  # strict is what is claimed when nothing is said


def test_steps_are_understood() -> None:
    read = campaign(SCRIPT)
    kill, cut, produce, wait = read.nemesis.steps
    assert isinstance(kill, NodeStep)
    assert (kill.node, kill.alias, kill.title) == ("leader:0", "A", "step 1 (kill leader:0 as A)")
    assert isinstance(cut, CutStep)
    assert (cut.between, cut.one_way) == ((("A",), ("n2", "n3")), True)
    assert isinstance(produce, ProduceStep)
    assert (produce.count, produce.acks, produce.expect) == (2, 1, "any")
    assert isinstance(wait, WaitStep)
    assert wait.arguments == {"event": "truncated", "node": "A", "where": {"partition": 0}}
    assert wait.deadline_s == 5


SCRIPT = """
[workload]
assignment = [[1, 2]]
[nemesis]
kind = "steps"
[[nemesis.step]]
do = "kill"
node = "leader:0"
as = "A"
[[nemesis.step]]
do = "cut"
between = ["A", ["n2", "n3"]]
one_way = true
[[nemesis.step]]
do = "produce"
count = 2
acks = 1
expect = "any"
[[nemesis.step]]
do = "wait"
event = "truncated"
node = "A"
where = { partition = 0 }
deadline_s = 5
"""

OWN = '[workload]\nkind = "register"\n'

WRONG = {
    '[workload]\nkind = "stack"': ("c.toml:3: [workload] kind: 'stack' is not known; known: KINDS").replace(
        "KINDS", ", ".join(sorted(WORKLOAD_WORDS["kind"]))
    ),
    OWN + "keys = 0\n[client]\nclient_class = 'm:C'": "c.toml:4: [workload] keys: 0 is smaller than 1",
    OWN + "writes = 0\ncas = 0": (
        "c.toml:2: [workload] writes and cas are both 0: a register without changes proves nothing; give one of "
        "them a weight"
    ),
    OWN: (
        'c.toml:1: [client] the workload "register" needs a client: in [client] of brownout\'s description class = '
        '"parser.py:Class" or command = ["./program", ...], or here client_class or client_command'
    ),
    OWN + '[client]\nclient_class = "Client"': (
        'c.toml:5: [client] client_class: \'Client\' is not of the form "parser.py:Class" or "module:Class"'
    ),
    OWN + '[client]\nclient_class = "/no/where.py:Client"': (
        "c.toml:5: [client] client_class: the file /no/where.py does not exist"
    ),
    OWN + '[client]\nclient_command = "x"': (
        'c.toml:5: [client] client_command: \'x\' is not a list of texts such as ["...", "..."]'
    ),
    OWN + '[client]\nclient_class = "m:C"\ntimeout_s = 0': ("c.toml:6: [client] timeout_s: 0 is smaller than 0.01"),
    '[client]\nclient_class = "m:C"': (
        'c.toml:2: [client] the workload "log" has built-in clients; leave [client] out'
    ),
    OWN + '[client]\nclient_class = "m:C"\n[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "consume"': (
        'c.toml:9: [nemesis.step] do: the clients of the workload "register" do not consume on command'
    ),
    OWN + 'keys = 401\n[client]\nclient_command = ["true"]': (
        "c.toml:4: [workload] keys: 401 are more than 400, the most that a client which is a program can write to at "
        "the end; take fewer, or bring a class"
    ),
    '[workload]\nkind = "append-log"\n[client]\nclient_command = ["true"]\n[nemesis]\nkind = "steps"\n'
    '[[nemesis.step]]\ndo = "consume"\n[[nemesis.step]]\ndo = "produce"': (
        "c.toml:11: [nemesis.step] do: a client that is a program does not produce on command; bring a class, or leave "
        "the step out"
    ),
    '[[cell]]\nname = "a"\nclient = { options = { reads = "old" } }': (
        'c.toml:4: [cell.client] the workload "log" has built-in clients; leave [client] out'
    ),
    "[broker]\nmin.insync.replicas = 2": (
        "c.toml:3: [broker] min.insync.replicas: to TOML, dots make tables; put the key in quotes: "
        '"min.insync.replicas" = ...'
    ),
    "[workload]\nrate = inf": "c.toml:3: [workload] rate: inf is not a number that can be waited for or counted to",
    "[workload]\nduration_s = nan": (
        "c.toml:3: [workload] duration_s: nan is not a number that can be waited for or counted to"
    ),
    "[workload]\nproducers = 65": "c.toml:3: [workload] producers: 65 is larger than 64",
    "[workload]\nrecord_bytes = 1000001": "c.toml:3: [workload] record_bytes: 1000001 is larger than 1000000",
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [1, inf]': (
        "c.toml:5: [nemesis] interval_s: [1, inf] is not a pair of finite numbers"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "lost-write" }': (
        "c.toml:4: [cell.expect] anomaly: 'lost-write' is not known; did you mean 'lost-acknowledged-write'?"
    ),
    "[topology]\nnode = 3": "c.toml:3: [topology] unknown key 'node'; did you mean 'nodes'?",
    "[topolgy]": "c.toml:2: unknown key 'topolgy'; did you mean 'topology'?",
    '[topology]\nnodes = "three"': "c.toml:3: [topology] nodes: 'three' is not a whole number",
    "[topology]\nnodes = true": "c.toml:3: [topology] nodes: True is not a whole number",
    "[topology]\nnodes = 12": "c.toml:3: [topology] nodes: 12 is larger than 9",
    '[topology]\nworld = "moon"': (
        "c.toml:3: [topology] world: 'moon' is not known; "
        "known: auto, inventory, namespaces, process, simulation, vagrant"
    ),
    '[topology]\nnode_root = "image"': (
        "c.toml:3: [topology] node_root: only world = \"namespaces\" has a choice, and it is 'auto'"
    ),
    '[topology]\ninventory = "hosts.yml"': (
        "c.toml:3: [topology] inventory: only world = \"inventory\" has one, and it is 'auto'"
    ),
    '[nemesis]\nkind = "random"\nfaults = ["clock-freeze"]\n[checks]\nupper_bound = "strict"': (
        'c.toml:6: [checks] upper_bound: "strict" cannot be claimed with clock-freeze: a leader whose clock stands '
        'still does not see its lease end, and continues to serve reads; set upper_bound = "session"'
    ),
    "[workload]\nreplication_factor = 4": (
        "c.toml:3: [workload] replication_factor: 4 replicas need as many nodes, and [topology] has 3"
    ),
    '[workload]\ntopic = ".."': (
        "c.toml:3: [workload] topic: '..' is not a topic's name; use 1 to 200 of the characters a-z, A-Z, 0-9, '.', "
        "'_' and '-', and neither '.' nor '..'"
    ),
    "[workload]\nduration_s = -1": "c.toml:3: [workload] duration_s: -1 is smaller than 0",
    "[workload]\nassignment = [[1, 1]]": "c.toml:3: [workload] assignment: [1, 1] names a node twice",
    "[workload]\nassignment = [[4]]": "c.toml:3: [workload] assignment: 4 is not a node; the nodes are 1 to 3",
    '[nemesis]\nkind = "random"\nfaults = ["kil"]': (
        "c.toml:4: [nemesis] faults: 'kil' is not known; did you mean 'kill'?"
    ),
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [4, 2]': (
        "c.toml:5: [nemesis] interval_s: the upper bound 2 is smaller than the lower bound 4"
    ),
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\nduration_s = [-1, 2]': (
        "c.toml:5: [nemesis] duration_s: -1 is smaller than 0"
    ),
    '[workload]\nduration_s = 5\n[nemesis]\nkind = "random"\nfaults = ["kill", "pause"]': (
        "c.toml:6: [nemesis] faults: 2 kinds of fault need at least 8 s, but the main phase lasts 5 s; lengthen it, "
        "shorten interval_s or duration_s, or list fewer faults"
    ),
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\n[checks]\nrequired_faults = ["pause"]': (
        "c.toml:6: [checks] required_faults: 'pause' can never happen: [nemesis] does not inject it; add it there, "
        "or leave it out here"
    ),
    '[broker]\n"min.insync.replica" = 2': (
        "c.toml:3: [broker] unknown broker key 'min.insync.replica'; did you mean 'min.insync.replicas'?"
    ),
    '[broker]\n"min.insync.replicas" = "two"': ("c.toml:3: [broker] min.insync.replicas: 'two' is not a whole number"),
    '[broker]\n"min.insync.replicas" = 0': "c.toml:3: [broker] min.insync.replicas: 0 is smaller than 1",
    '[topology]\nnodes = 1\n[workload]\nreplication_factor = 1\n[broker]\n"broker.lease.ms" = 9000': (
        "c.toml:6: [broker] n1 in cell main: broker.lease.ms (9000) must be smaller than broker.session.timeout.ms "
        "(1500): a leader must stop answering before another can be elected"
    ),
    '[broker.n9]\n"min.insync.replicas" = 1': "c.toml:2: [broker] unknown node n9; the nodes are n1 to n3",
    '[[cell]]\nname = "a"\nmutants = ["truncate_to_wh"]': (
        "c.toml:4: [cell] mutants: 'truncate_to_wh' is not known; did you mean 'truncate_to_hw'?"
    ),
    '[[cell]]\nname = "a"\n[[cell]]\nname = "a"': "c.toml:5: [cell] name: two cells are called 'a'",
    '[[cell]]\nname = "a"\nexpect = { verdict = "unknown" }': (
        "c.toml:4: [cell.expect] reason is missing; a cell that must be unknown says why: a code of docs/anomalies.md"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "unknown", reason = "too-few-change" }': (
        "c.toml:4: [cell.expect] reason: 'too-few-change' is not known; did you mean 'too-few-changes'?"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "pass", reason = "too-few-changes" }': (
        "c.toml:4: [cell.expect] reason: only verdict = \"unknown\" takes it, and it is 'pass'; leave it out"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "pass", must_hold = ["AWL"] }': (
        "c.toml:4: [cell.expect] must_hold: only verdict = \"fail\" takes it, and it is 'pass'; leave it out"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "duplicate", must_hold = ["before-fault"] }': (
        "c.toml:4: [cell.expect] must_hold: 'before-fault' is not known; did you mean 'before-faults'?"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "duplicate", must_hold = ["DUP"] }': (
        "c.toml:4: [cell.expect] must_hold: 'DUP' cannot hold where duplicate is expected; leave it out"
    ),
    '[system]\nname = "etcd"\n[workload]\nkind = "register"\n[[cell]]\nname = "a"\n'
    'expect = { verdict = "fail", anomaly = "stale-register-read", must_hold = ["before-faults"] }': (
        "c.toml:8: [cell.expect] must_hold: 'before-faults' exists for logs only; leave it out"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "duplicate", must_hold = ["above-uploads"] }': (
        "c.toml:4: [cell.expect] must_hold: 'above-uploads' exists for topics with tiered storage only; leave it out"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail" }': (
        "c.toml:4: [cell.expect] anomaly is missing; a cell that must fail names it"
    ),
    '[[cell]]\nname = "a"\nexpect = { at_least = 2 }': (
        "c.toml:4: [cell.expect] at_least: only verdict = \"fail\" takes it, and it is 'pass'; leave it out"
    ),
    '[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "duplicate", at_least = 0 }': (
        "c.toml:4: [cell.expect] at_least: 0 is smaller than 1"
    ),
    '[seeds]\ncount = 2\n[[cell]]\nname = "a"\nexpect = { verdict = "fail", anomaly = "duplicate", at_least = 3 }': (
        "c.toml:6: [cell.expect] at_least: the campaign has 2 seeds; raise [seeds] count, or lower at_least"
    ),
    "[checks]\nmin_ok = -3": "c.toml:3: [checks] min_ok: -3 is smaller than 0",
    "[checks]\nmin_share = -0.1": "c.toml:3: [checks] min_share: -0.1 is smaller than 0",
    "[checks]\nmin_share = 25": ("c.toml:3: [checks] min_share: 25 is larger than 1; it is a share, such as 0.25"),
    "[checks]\nmin_queries = -1": "c.toml:3: [checks] min_queries: -1 is smaller than 0",
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\noptional_faults = ["pause"]': (
        "c.toml:5: [nemesis] optional_faults: 'pause' is not among faults; an optional fault must be in both"
    ),
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\noptional_faults = ["kill"]\n[checks]\nrequired_faults = ["kill"]': (
        "c.toml:7: [checks] required_faults: 'kill' is optional in [nemesis]; a required fault cannot be "
        "optional; remove it from one of the two"
    ),
    '[nemesis]\nkind = "schedule"': 'c.toml:2: [nemesis] kind "schedule" needs at least one [[nemesis.fault]]',
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "kill"\nat_s = 1': (
        "c.toml:4: [nemesis.fault] duration_s is missing; add duration_s = a number"
    ),
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "kil"\nat_s = 1\nduration_s = 1': (
        "c.toml:5: [nemesis.fault] fault: 'kil' is not known; did you mean 'kill'?"
    ),
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "kill"\nat_s = 1\nduration_s = 1\nnodes = ["n9"]': (
        "c.toml:8: [nemesis.fault] nodes: 'n9' is not known; known: n1, n2, n3"
    ),
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "packet-loss"\nat_s = 1\nduration_s = 1\n'
    "parameters = { percen = 4 }": "c.toml:8: [nemesis.fault] parameters: percen: did you mean 'percent'?",
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "packet-loss"\nat_s = 1\nduration_s = 1': (
        "c.toml:4: [nemesis.fault] parameters: percent: missing; packet-loss needs it: 1 to 50 %"
    ),
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "partition-one"\nat_s = 1\nduration_s = 1\n'
    'parameters = { direction = "up" }': (
        "c.toml:8: [nemesis.fault] parameters: direction: 'up' is not known; known: both, out, in"
    ),
    '[nemesis]\nkind = "schedule"\n[[nemesis.fault]]\nfault = "power-loss"\nat_s = 1\nduration_s = 1\n'
    "parameters = { tear = -1 }": "c.toml:8: [nemesis.fault] parameters: tear: -1 is not a seed, a whole number from 0",
    "[seeds]\ncount = 0": "c.toml:3: [seeds] count: 0 is smaller than 1",
    "[workload]\nduration_s = 1e17": "c.toml:3: [workload] duration_s: 1e+17 is larger than 10000000",
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [1, 1e17]': (
        "c.toml:5: [nemesis] interval_s: 1e+17 is larger than 10000000"
    ),
    "[checks]\nprogress_s = 10000001": "c.toml:3: [checks] progress_s: 10000001 is larger than 10000000",
    "[workload]\nrate = 1e200": "c.toml:3: [workload] rate: 1e+200 is larger than 1e+06",
    '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [0, 0]\nduration_s = [0, 1e-9]': (
        "c.toml:4: [nemesis] faults: 60 s with a fault each 5e-10 s result in more than 100,000 faults; lengthen "
        "interval_s or duration_s, or shorten the main phase"
    ),
    "[seeds]\ncount = 9223372036854775808": "c.toml:3: [seeds] count: a whole number here has 64 bits at most",
    "[seeds]\ncount = 9223372036854775807": (
        "c.toml:3: [seeds] first and count: seeds are whole numbers below 2^63 - 1"
    ),
    OWN + '[client]\nclient_class = "a\\u0000.py:C"': (
        "c.toml:5: [client] client_class: 'a\\x00.py:C' has a character that no text here may have: U+0000"
    ),
    '[system]\npath = "\\u0000"': (
        "c.toml:3: [system] path: '\\x00' has a character that no text here may have: U+0000"
    ),
    "[topology\nnodes = 3": (
        "c.toml:2: not valid TOML: Expected ']' at the end of a table declaration (at line 2, column 10)"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_names_file_line_and_remedy(text: str) -> None:
    with pytest.raises(InputError) as caught:
        campaign(text)
    assert str(caught.value) == WRONG[text]


EXCESS = "a whole number here has 64 bits at most"
HUGE = {
    "310 digits": (f"[workload]\nrate = 1{'0' * 309}", f"c.toml:3: [workload] rate: {EXCESS}"),
    "a range": (f"[nemesis]\ninterval_s = [1, 1{'0' * 309}]", f"c.toml:3: [nemesis] interval_s: {EXCESS}"),
    "in a list of lists": (
        f"[workload]\nassignment = [[1], [0x{'f' * 5000}]]",
        f"c.toml:3: [workload] assignment: {EXCESS}",
    ),
    "5000 digits": (f"x = {'9' * 5000}", "c.toml: a number in it has too many digits"),
    "depth": (f"x = {'[' * 2000}{']' * 2000}", "c.toml: a list or a table in it is nested too deeply"),
    "depth of keys": (f"[topology]\nnodes{'.x' * 2000} = 1", "c.toml:3: [topology] nodes: what is nested so deeply is"),
}


@pytest.mark.parametrize(("text", "words"), HUGE.values(), ids=HUGE)
def test_excessive_values_are_refused_with_file_and_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        campaign(text)
    assert str(caught.value).startswith(words)


WRONG_STEPS = {
    'do = "kil"': "c.toml:7: [nemesis.step] do: 'kil' is not known; did you mean 'kill'?",
    'do = "kill"': 'c.toml:6: [nemesis.step] node is missing; add node = a text such as "..."',
    'do = "kill"\nnode = "B"': (
        'c.toml:8: [nemesis.step] node: \'B\' is not a node; use n1 to n3, "leader:0", "follower:0", "controller", or '
        "a name that an earlier step assigned with as"
    ),
    'do = "kill"\nnode = "n4"': "c.toml:8: [nemesis.step] node: there is no n4; the nodes are n1 to n3",
    'do = "kill"\nnode = "leader:1"': (
        "c.toml:8: [nemesis.step] node: leader:1: the topic has 1 partition, counted from 0"
    ),
    'do = "kill"\nnode = "n1"\nas = "b"': (
        "c.toml:9: [nemesis.step] as: 'b' is not a name; start it with a capital letter, such as A"
    ),
    'do = "cut"\nbetween = ["n1"]': (
        'c.toml:8: [nemesis.step] between: [\'n1\'] is not a pair of nodes, such as ["A", "B"], or of groups, such as '
        '[["A"], ["B", "n3"]]'
    ),
    'do = "cut"\nbetween = ["n1", "n1"]': "c.toml:8: [nemesis.step] between: a node cannot be cut from itself",
    'do = "wait"': (
        "c.toml:6: [nemesis.step] a wait needs exactly one of: leader, isr, offline, controller, fenced, unfenced, "
        "event, checkpoint, log, log_end, in_sync, offset, seconds; 0 are given"
    ),
    'do = "produce"\nacks = 2': 'c.toml:8: [nemesis.step] acks: 2 is not "all", 1 or 0',
    'do = "produce"\nexpect = "info"\ncount = 2': (
        'c.toml:9: [nemesis.step] count must be 1 with expect = "info"; leave count out'
    ),
    'do = "produce"\nuntil_ok = true\nexpect = "any"': (
        "c.toml:9: [nemesis.step] expect: with until_ok appends are repeated until acknowledged; leave out one"
    ),
    'do = "heal"\ntear = true': (
        "c.toml:8: [nemesis.step] unknown key 'tear'; known: between, deadline_s, do, node, why"
    ),
    'do = "heal"\ndeadline_s = -1': "c.toml:8: [nemesis.step] deadline_s: -1 is smaller than 0.001",
}


@pytest.mark.parametrize("step", WRONG_STEPS)
def test_an_error_of_a_step_is_named(step: str) -> None:
    text = f'[workload]\nassignment = [[1, 2]]\n[nemesis]\nkind = "steps"\n[[nemesis.step]]\n{step}\n'
    with pytest.raises(InputError) as caught:
        campaign(text)
    assert str(caught.value) == WRONG_STEPS[step]


def test_a_workload_has_its_kinds_own_keys_and_a_client_of_the_users() -> None:
    made = campaign(
        '[system]\nname = "etcd"\n[workload]\nkind = "register"\nkeys = 2\n'
        '[client]\nclient_class = "package.module:Class"\n'
        'timeout_s = 1.5\noptions = { token = "x" }\n'
    )
    assert made.workload.parameters == {"clients": 4, "keys": 2, "reads": 5, "writes": 3, "cas": 2}
    assert (made.workload.topic, made.workload.partitions, made.workload.assign((1, 2, 3))) == ("", 0, ())
    assert (made.client.client_class, made.client.timeout_s) == ("package.module:Class", 1.5)
    assert made.client.options == {"token": "x"}


def test_files_of_a_client_are_relative_to_the_campaign(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from brownout_api import Client\n\n\nclass C(Client): ...\n")
    (tmp_path / "c.toml").write_text(
        'name = "x"\n[workload]\nkind = "append-log"\n[client]\nclient_class = "mine.py:C"\n'
    )
    assert load(tmp_path / "c.toml").client.client_class == f"{tmp_path / 'mine.py'}:C"
    (tmp_path / "mine").touch(0o755)
    (tmp_path / "c.toml").write_text(
        'name = "x"\n[workload]\nkind = "append-log"\n[client]\nclient_command = ["./mine", "./as-it-is"]\n'
    )
    client = load(tmp_path / "c.toml").client
    assert client.client_command == (str(tmp_path / "mine"), "./as-it-is")
    assert client.command_directory == str(tmp_path)


def test_one_node_cannot_be_cut_off_from_others() -> None:
    text = '[topology]\nnodes = {}\n[nemesis]\nkind = "random"\nfaults = ["kill", "partition-one"]\n'
    assert campaign(text.format(2)).nemesis.faults == ("kill", "partition-one")
    with pytest.raises(InputError, match=r"c\.toml:6: .*'partition-one' affects pairs of nodes, and .* has only one"):
        campaign(text.format(1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe4"')
    with pytest.raises(InputError, match=r"latin\.toml: is not UTF-8"):
        load(tmp_path / "latin.toml")


def test_all_errors_are_reported_at_once_in_the_order_of_the_file() -> None:
    with pytest.raises(InputError) as caught:
        campaign(
            '[topology]\nfilesystem = "fat"\n[seeds]\ncount = 0\n[workload]\nrate = "fast"\n[checks]\nmin_okay = 3\n'
            '[[cell]]\nname = "a"\nmutants = ["none-such"]\n[[cell]]\nname = "A"\n'
        )
    first, *complaints = str(caught.value).splitlines()
    assert first == "c.toml: 6 things are wrong"
    assert [line.split(":")[1] for line in complaints] == ["3", "5", "7", "9", "12", "14"]
    assert complaints[3] == "  c.toml:9: [checks] unknown key 'min_okay'; did you mean 'min_ok'?"


def test_consequences_of_an_error_are_not_reported_beside_it() -> None:
    with pytest.raises(InputError) as caught:
        campaign('[topology]\nnodes = "five"\n[workload]\nassignment = [[1, 2, 5]]\n')
    assert str(caught.value) == "c.toml:3: [topology] nodes: 'five' is not a whole number"
    with pytest.raises(InputError) as caught:
        campaign(
            '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "kil"\nnode = "n1"\nas = "A"\n'
            '[[nemesis.step]]\ndo = "start"\nnode = "A"\n'
        )
    assert str(caught.value) == "c.toml:5: [nemesis.step] do: 'kil' is not known; did you mean 'kill'?"


AWAITED = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "wait"\nnode = "n1"\n'


def test_an_event_that_is_never_traced_is_not_waited_for() -> None:
    for step, words in (
        ('event = "partition_rolle"', "event: 'partition_rolle' is not traced; did you mean 'partition_role'?"),
        (
            'event = "truncated"\nwhere = { parttion = 0 }',
            "where: 'truncated' has no field 'parttion'; did you mean 'partition'?",
        ),
    ):
        with pytest.raises(InputError) as caught:
            campaign(AWAITED + step)
        assert str(caught.value).endswith(words)
    assert campaign(AWAITED + 'event = "truncated"\nwhere = { partition = 0 }').nemesis.steps


def test_a_minimum_that_no_run_can_reach_is_refused() -> None:
    load = "[workload]\nrate = 10\nduration_s = 10\n[checks]\n"
    for key in ("min_ok", "min_queries"):
        with pytest.raises(InputError, match=rf"c.toml:6: \[checks\] {key}: 1000 can never be reached: .* at most"):
            campaign(f"{load}{key} = 1000")
    assert campaign(f"{load}min_ok = 40").checks.min_ok == 40
    script = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "produce"\n[workload]\nproducers = 0\nconsumers = 0\n'
    with pytest.raises(InputError, match="min_ok: 1000 can never be reached"):
        campaign(f"{script}[checks]\nmin_ok = 1000")
    many = script.replace('do = "produce"', 'do = "produce"\ncount = 100\nacks = {}')
    assert campaign(many.format('"all"') + "[checks]\nmin_ok = 100").checks.min_ok == 100
    with pytest.raises(InputError, match=r"min_ok: 100 can never be reached: .*acks = 0 or 1 do not count"):
        campaign(many.format(1) + "[checks]\nmin_ok = 100")
    with pytest.raises(InputError, match="min_ok: 1 can never be reached"):
        campaign(many.format(1).replace("[workload]", "[workload]\nprobe_acks = 1") + "[checks]\nmin_ok = 1")
