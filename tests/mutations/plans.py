"""Mutations of `run.toml`, the plan that the evidence is compared with."""

from __future__ import annotations

from tests.mutations.mutation import PASSES, Catalog, fails, unknown
from tests.mutations.stored import Stored

mutation = Catalog("plan")

PLAN = "run.toml"
TELLS = unknown("run.toml")


def stating(name: str, pattern: str, replacement: str, *wants: object) -> None:
    """A mutation that replaces what a regular expression matches in the plan."""
    mutation.add(name, lambda run: run.plan(pattern, replacement), *wants)  # type: ignore[arg-type]


@mutation(TELLS)
def deleted(run: Stored) -> None:
    run.remove(PLAN)


@mutation(TELLS)
def emptied(run: Stored) -> None:
    run.empty(PLAN)


@mutation(TELLS)
def garbage(run: Stored) -> None:
    run.edit(PLAN, lambda data: b"\x00\xff][" + data)


@mutation(TELLS)
def torn(run: Stored) -> None:
    run.edit(PLAN, lambda data: data[: data.index(b"[checks]") + 20])


@mutation(TELLS)
def torn_between_two_tables(run: Stored) -> None:
    run.edit(PLAN, lambda data: data[: data.index(b"[topology]")])


stating("one node fewer", r"^nodes = 3$", "nodes = 2", unknown("n3|node"))
stating("one node more", r"^nodes = 3$", "nodes = 4", unknown("n4|node"))
stating("no nodes", r"^nodes = 3$", "nodes = 0", unknown("node"))
stating("a text for nodes", r"^nodes = 3$", 'nodes = "three"', unknown("nodes"))
stating("nodes missing", r"^nodes = 3$", "", unknown("node"))
stating("one partition fewer", r"^partitions = 2$", "partitions = 1", unknown("log-1|partition|assignment"))
stating("one partition more", r"^partitions = 2$", "partitions = 3", unknown("log-2|partition|assignment"))
stating("no partitions", r"^partitions = 2$", "partitions = 0", unknown("partition|log-0|assignment"))
stating("partitions missing", r"^partitions = 2$", "", unknown("partition|assignment"))
stating("another topic", r'^topic = "log"$', 'topic = "other"', unknown("other|log"))
stating(
    "one partition fewer in partitions and assignment",
    r"^partitions = 2((?:.|\n)*?)^assignment = \[(\[.*?\]), \[.*?\]\]$",
    r"partitions = 1\1assignment = [\2]",
    unknown("log-1|assignment|elsewhere"),
)
stating(
    "a replica fewer", r"^assignment = \[\[(\d), (\d), (\d)\]", r"assignment = [[\1, \2]", unknown("log-0|elsewhere")
)
stating(
    "a replica on a node that there is not",
    r"^assignment = \[\[(\d), (\d), (\d)\]",
    r"assignment = [[\1, \2, 7]",
    unknown("7|log-0|elsewhere"),
)
stating(
    "another assignment", r"^assignment = .*$", "assignment = [[2, 1, 3], [3, 1, 2]]", unknown("placement|assignment")
)
stating("assignment of texts", r"^assignment = .*$", 'assignment = "anywhere"', unknown("assignment"))
stating("more clients", r'^clients = \["producer-1"', 'clients = ["producer-9", "producer-1"', unknown("producer-9"))
stating("fewer clients", r'^clients = \["producer-1", ', "clients = [", PASSES, unknown("producer-1"))
stating("no clients", r"^clients = .*$", "clients = []", unknown("client"))
stating("clients missing", r"^clients = .*$", "", unknown("client"))
stating("more queries than there were", r"^min_queries = 1$", "min_queries = 9999", unknown("quer"))
stating("much more load than there was", r"^changes = 0$", "changes = 400000", unknown("400,000"))
stating("a share of another type", r"^min_share = .*$", 'min_share = "half"', unknown("min_share"))
stating("a share that is not a number", r"^min_share = .*$", "min_share = nan", unknown("min_share"))
stating("a negative share", r"^min_share = .*$", "min_share = -1.0", unknown("min_share"))
stating("no final reads", r"^\[checks\]$", "[checks]\nfinal_reads = false", unknown("final_reads"))
stating("replicas not compared", r"^\[checks\]$", "[checks]\nreplicas = false", unknown("replicas"))
stating("more steps", r"^steps = \[", 'steps = ["step 99 (pray)", ', unknown("step"))
stating("roles missing", r"^\[system.roles\]\n(n\d = .*\n)+", "", unknown("roles|node"))
stating("a role fewer", r'^n3 = "broker"$', "", unknown("n3|node"))
stating("metadata of a format that there is not", r'^format = "kraft"$', 'format = "runes"', unknown("runes|metadata"))
stating(
    "records of a form that there is not", r'^records = "derived"$', 'records = "riddles"', unknown("records|riddles")
)
stating("records of another form", r'^records = "derived"$', 'records = "value-first"', PASSES, unknown("record"))
stating("records of another size", r"^record_bytes = 128$", "record_bytes = 200", fails(), unknown("bytes|record"))
stating(
    "an upper bound that there is not", r'^upper_bound = "strict"$', 'upper_bound = "firm"', unknown("upper_bound|firm")
)
stating("a judge that there is not", r'^judge = "log"$', 'judge = "oracle"', unknown("judge|oracle"))
stating("another judge", r'^judge = "log"$', 'judge = "register"', unknown("register|judge|log"))
stating(
    "replicas of a format that there is not", r'^format = "kafka"$', 'format = "scrolls"', unknown("scrolls|format")
)
stating("replicas of no format", r'^format = "kafka"$', 'format = "none"', PASSES, unknown("replica|format"))
stating("more required faults", r"^required_faults = \[", 'required_faults = ["power-loss", ', unknown("power-loss"))
stating(
    "a required fault that there is not",
    r"^required_faults = \[",
    'required_faults = ["x", ',
    unknown("fault x|\"x\"|'x'"),
)
stating("required faults of another type", r"^required_faults = .*$", "required_faults = 7", unknown("required_faults"))
stating("a minimum that was not reached", r"^min_ok = \d+$", "min_ok = 100000", unknown("100,?000"))
stating("queries of another type", r"^min_queries = 1$", 'min_queries = "some"', unknown("min_queries"))
stating("a minimum of another type", r"^min_ok = \d+$", 'min_ok = "some"', unknown("min_ok"))
stating("a negative minimum", r"^min_ok = \d+$", "min_ok = -1", unknown("min_ok"))
stating("an expectation that there is not", r'^verdict = "pass"$', 'verdict = "green"', unknown("expect|verdict|green"))
stating("another run", r'^run = ".*"$', 'run = "20200101T000000ff-main-1"', unknown("run"))
stating("a seed of another type", r"^seed = 1$", 'seed = "one"', unknown("seed"))

# Undetectable but for the seal: such a plan is lawful, and the run keeps to it.
WEAKER = (PASSES, unknown("."))
stating("little more load than there was", r"^changes = 0$", "changes = 40", *WEAKER)
stating("a lower share", r"^min_share = .*$", "min_share = 0.0", *WEAKER)
stating("no required faults", r"^required_faults = .*$", "required_faults = []", *WEAKER)
stating("a lower minimum", r"^min_ok = \d+$", "min_ok = 1", *WEAKER)
stating("no queries", r"^min_queries = 1$", "min_queries = 0", *WEAKER)
stating("weaker upper bounds", r'^upper_bound = "strict"$', 'upper_bound = "lower-bound-only"', *WEAKER)
stating("another expectation", r'^verdict = "pass"$', 'verdict = "fail"', *WEAKER)
stating("another seed", r"^seed = 1$", "seed = 2", *WEAKER)
stating("a remark", r"^\[expect\]$", "# nothing of importance\n[expect]", PASSES)
