"""Mutations of `run.toml`, the plan that the evidence is compared with."""

from tests.mutations.mutation import Catalog, fails, unknown

mutation = Catalog("plan")

PLAN = "run.toml"
TELLS = unknown("run.toml")


def stating(name: str, pattern: str, replacement: str, *wants: object) -> None:
    """A mutation that replaces what a regular expression matches in the plan."""
    mutation.add(name, lambda run: run.plan(pattern, replacement), *wants)  # type: ignore[arg-type]


mutation.add("deleted", lambda run: run.remove(PLAN), TELLS)
mutation.add("emptied", lambda run: run.empty(PLAN), TELLS)
mutation.add("garbage", lambda run: run.edit(PLAN, lambda data: b"\x00\xff][" + data), TELLS)
mutation.add("torn", lambda run: run.edit(PLAN, lambda data: data[: data.index(b"[checks]") + 20]), TELLS)
mutation.add(
    "torn between two tables", lambda run: run.edit(PLAN, lambda data: data[: data.index(b"[topology]")]), TELLS
)


stating("one node fewer", r"^nodes = 3$", "nodes = 2", unknown("n3|node"))
stating("one node more", r"^nodes = 3$", "nodes = 4", unknown("n4|node"))
stating("one partition fewer", r"^partitions = 2$", "partitions = 1", unknown("log-1|partition|assignment"))
stating("one partition more", r"^partitions = 2$", "partitions = 3", unknown("log-2|partition|assignment"))
stating("another topic", r'^topic = "log"$', 'topic = "other"', unknown("other|log"))
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
stating("more clients", r'^clients = \["producer-1"', 'clients = ["producer-9", "producer-1"', unknown("producer-9"))
stating("more queries than there were", r"^min_queries = 1$", "min_queries = 9999", unknown("quer"))
stating("much more load than there was", r"^changes = 0$", "changes = 400000", unknown("400,000"))
stating("more steps", r"^steps = \[", 'steps = ["step 99 (pray)", ', unknown("step"))
stating("metadata of a format that there is not", r'^format = "kraft"$', 'format = "runes"', unknown("runes|metadata"))
stating("records of another size", r"^record_bytes = 128$", "record_bytes = 200", fails(), unknown("bytes|record"))
stating("a judge that there is not", r'^judge = "log"$', 'judge = "oracle"', unknown("judge|oracle"))
stating("another judge", r'^judge = "log"$', 'judge = "register"', unknown("register|judge|log"))
stating(
    "replicas of a format that there is not", r'^format = "kafka"$', 'format = "scrolls"', unknown("scrolls|format")
)
stating("more required faults", r"^required_faults = \[", 'required_faults = ["power-loss", ', unknown("power-loss"))
stating("a minimum that was not reached", r"^min_ok = \d+$", "min_ok = 100000", unknown("100,?000"))
stating("another run", r'^run = ".*"$', 'run = "20200101T000000ff-main-1"', unknown("run"))
