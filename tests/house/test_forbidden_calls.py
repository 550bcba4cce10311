"""Calls that the source must not have."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_module_syncs_the_whole_machine() -> None:
    """What other runs, and other nodes of the same run, have at stake in memory must stay there: `sync -f` is for one
    filesystem."""
    tracked = subprocess.run(["git", "ls-files", "*.py", "*.j2", "*.sh", "brownout"], cwd=ROOT, capture_output=True)
    names = tracked.stdout.decode().splitlines()
    assert names
    whole = re.compile(r"\bos\.sync\(|^\s*sync\s*$", re.MULTILINE)
    assert [name for name in names if whole.search((ROOT / name).read_text(encoding="utf-8"))] == []


def callers(call: str, *, but: set[str]) -> list[str]:
    """The modules of the product that match `call`, without those in `but`."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, encoding="utf-8").stdout
    names = [name for name in listed.split() if not name.startswith(("tests/", "benchmarks/"))]
    assert but <= set(names)
    found = [name for name in names if re.search(call, (ROOT / name).read_text(encoding="utf-8"))]
    assert but <= set(found), "a module of the exception no longer does this"
    return [name for name in found if name not in but]


def test_one_function_runs_an_operation_for_each_item_at_once() -> None:
    """`nemeses.scheduling.for_each`. The image's build runs one operation beside another, not one for each."""
    assert callers(r"\bThreadPoolExecutor\(", but={"nodeimage/build.py"}) == []


def test_one_function_writes_a_file_atomically() -> None:
    """`history.regular_files.replace_text`. The others replace a link, a directory, a file of
    the broker's disk, or run in Ansible."""
    others = {"broker/disk.py", "orchestrator/store/directories.py", "playbooks/action_plugins/collected.py"}
    assert callers(r"\bos\.replace\(", but={"history/regular_files.py", *others}) == []


def test_one_function_computes_the_digest_of_a_file() -> None:
    """`history.regular_files.sha256_of`."""
    assert callers(r"\bfile_digest\(", but={"history/regular_files.py"}) == []


def test_libraries_do_not_print() -> None:
    """They run in other programs too: a line of a simulated broker would damage the JSON of `brownout mutants --json`.
    A function gets a `say` from its program."""
    printing = callers(r"(?<![\w.\"'`])print\(|\bpartial\(print\b", but={"broker/__main__.py"})
    rooms = ("analysis/", "broker/", "history/", "nemeses/", "simulator/", "systems/", "workloads/")
    assert [name for name in printing if name.startswith(rooms)] == []


def test_spark_is_used_by_its_dataframes_and_public_names_only() -> None:
    """Spark Connect has neither a context nor an RDD, and a private name of PySpark may go with any version."""
    assert callers(r"\b[sS]parkContext\b|\bparallelize\(|\.rdd\b|\bRDD\b", but=set()) == []
    private = r"\b_(gateway|jvm|jsc|jsparkSession|jdf|sc)\b|import _\w+"
    assert callers(rf"(?s)\A(?=.*pyspark).*({private})", but=set()) == []
