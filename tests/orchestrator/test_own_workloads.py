"""Workloads of a campaign's own, from the campaign's file to the gate: what docs/own-workloads.md says."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from tests.orchestrator.stored_campaign import Answer, ask
from tests.orchestrator.users_tests import assert_tests_pass

PAGE = (PROJECT_ROOT / "docs/own-workloads.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
Change = Callable[[str], str]
READ = 'yield Operation("read")'
"""The first one is that of the load, the second one that of the final read."""


def written(directory: Path, **changes: Change) -> Path:
    """The files of the page. `changes`: of `bank` (bank.py) and `campaign` (bank.toml)."""
    names = {"bank.py": changes.get("bank", str), "bank.toml": changes.get("campaign", str)}
    for name, text in FILES.items():
        (directory / name).write_text(names.get(name, str)(text))
    (directory / "bank-server").chmod(0o755)
    return directory / "bank.toml"


def run(path: Path, *options: str) -> Answer:
    return ask("run", path, "--store", path.parent / "store", "--engine", "in-process", "--no-plots", *options)


def replaced(old: str, new: str, count: int = -1) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, count)

    return change


@pytest.mark.rotating(13, among="real-time campaigns")
def test_the_banks_of_the_page_pass_and_fail_as_expected_also_by_the_stored_text(tmp_path: Path) -> None:
    path = written(tmp_path)
    answer = run(path)
    assert answer.code == 0, answer
    assert "wrong-total: bank.py:Balance: " in answer.out
    descriptions = [tomllib.loads(each.read_text()) for each in tmp_path.glob("store/bank/*-1/run.toml")]
    assert [each["workloads"] for each in descriptions] == [{"bank.py": FILES["bank.py"]}] * 2
    assert [each["workload"]["own"] for each in descriptions] == [{"accounts": 5, "balance": 20}] * 2
    (tmp_path / "bank.py").unlink()
    assert ask("gate", tmp_path / "store", "--again", "--engine", "in-process").code == 0


def short(campaign: str) -> str:
    """Without faults."""
    return re.sub(
        r"\[nemesis\].*?(?=\[checks\])", "", campaign.replace("duration_s = 5", "duration_s = 1"), flags=re.DOTALL
    )


UNKNOWN: dict[str, tuple[Change, str]] = {
    "a result is no JSON": (
        replaced('return self.ask({"do": "read"})', 'return {*self.ask({"do": "read"})}'),
        r"bank\.py:\d+: BankClient.read returned {.*}, not a JSON value of at most 1,000,000 bytes",
    ),
    "a result is too large": (
        replaced('return self.ask({"do": "read"})', 'return "x" * 10_000_000'),
        r"bank\.py:\d+: BankClient.read returned 'x+\.\.\., not a JSON value .*: it has 10,000,002 bytes as JSON",
    ),
    "later operations are wrong": (
        replaced(READ, f"{READ} if self.client == 'client-1' else 7", 1),
        r"bank\.py:19: Bank.operations yielded 7; yield Operation",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_mistake_that_shows_during_the_run_leaves_it_unknown(tmp_path: Path, case: str) -> None:
    bank, message = UNKNOWN[case]
    answer = run(written(tmp_path, bank=bank, campaign=short), "--cell", "after")
    assert answer.code == 2, answer
    assert re.search(message, answer.out + answer.err), answer
    (operations,) = tmp_path.glob("store/bank/*/history/operations")
    assert [*operations.glob("*.calls")]


WRONG: dict[str, tuple[Change, Change, str, str]] = {
    "no such file": (str, replaced("bank.py:Bank", "none.py:Bank", 1), "kind", "none.py: No such file"),
    "no such class": (str, replaced("bank.py:Bank", "bank.py:None_", 1), "kind", "bank.py has no None_"),
    "no workload": (
        str,
        replaced("bank.py:Bank", "bank.py:Balance", 1),
        "kind",
        "subclass of brownout_api.OwnWorkload",
    ),
    "an unknown kind": (str, replaced("bank.py:Bank", "bank.py", 1), "kind", "'bank.py' is not known"),
    "a syntax error": (replaced("def final", "def"), str, "kind", "bank.py:23: "),
    "a parameter of another type": (
        str,
        replaced("accounts = 5", 'accounts = "5"'),
        "accounts",
        "expected int, got str",
    ),
    "a parameter out of bounds": (str, replaced("accounts = 5", "accounts = 1"), "accounts", "expected int >= 2"),
    "an unknown parameter": (str, replaced("accounts = 5", "acounts = 5"), "acounts", "did you mean 'accounts'?"),
    "a default out of bounds": (
        replaced("= 20\n", "= -1\n"),
        str,
        "kind",
        "bank.py:14: Bank.balance: Expected `int` >= 0",
    ),
    "no default": (replaced(" = 20\n", "\n"), str, "kind", "bank.py:14: Bank.balance: it has no default; add one"),
    "queries that are a text": (
        replaced('("read",)', '"read"'),
        str,
        "kind",
        "bank.py:Bank.queries: a list of functions",
    ),
    "a taken name": (
        replaced("balance: A", "clients: A"),
        str,
        "kind",
        "declares 'clients', a key of every such workload",
    ),
    "no method": (
        replaced("def transfer(", "def transmit("),
        str,
        "kind",
        "bank.py:21: Bank.operations yielded the function",
    ),
    "no operation": (
        replaced("while True:", "while False:"),
        str,
        "kind",
        "bank.py:17: Bank.operations yields nothing",
    ),
    "no final operation": (
        replaced(f"final(self):\n        {READ}", "final(self):\n        return ()"),
        str,
        "kind",
        "bank.py:23: Bank.final yields nothing",
    ),
    "an exception": (replaced("random.sample(range", "random.sample(rang"), str, "kind", "bank.py:20: NameError"),
    "an argument that is no JSON": (
        replaced('{"from": giver, ', '{"from": {giver}, '),
        str,
        "kind",
        "bank.py:21: Bank.operations yielded transfer with the argument",
    ),
    "an argument of 10 MB": (
        replaced('"amount": random.randint(1, 5)', '"amount": "x" * 10_000_000'),
        str,
        "kind",
        "it has 10,000,0",
    ),
    "no checker": (str, replaced('use = ["bank.py:Balance"]\n', ""), "", "use is missing; name a checker, or a model"),
    "an unknown model": (
        str,
        replaced("[checks]\n", '[checks]\nmodel = "deque"\n'),
        "",
        "'deque' is not known; known: bank, ",
    ),
    "a model of other functions": (
        str,
        replaced("[checks]\n", '[checks]\nmodel = "set"\n'),
        "kind",
        "bank.py:Bank draws 'transfer'; the model 'set' has only add, remove, read",
    ),
    "a program as client": (
        str,
        replaced('client_class = "bank.py:BankClient"', 'client_command = ["true"]'),
        "kind",
        "needs a client that is a class",
    ),
    "no client": (str, replaced('client_class = "bank.py:BankClient"', ""), "", "client_class or client_command"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_workload_ends_the_command_before_anything_starts(tmp_path: Path, wrong: str) -> None:
    bank, campaign, key, message = WRONG[wrong]
    path = written(tmp_path, bank=bank, campaign=campaign)
    answer = run(path)
    assert answer.code == 64, answer
    assert message in answer.err, answer
    lines = path.read_text().split("[workload]")[0].count("\n"), path.read_text().splitlines()
    if key:
        line = next(at for at, text in enumerate(lines[1], 1) if at > lines[0] and text.startswith(f"{key} ="))
        assert f"{path}:{line}: [workload] " in answer.err, answer
    assert not (tmp_path / "store").exists()


def test_a_generator_without_end_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.loaded_workload.HANGS_S", 0.2)
    stop = tmp_path / "stop"
    loop = f"import os\n        while not os.path.exists({str(stop)!r}): pass\n        while True:\n            {READ}"
    answer = run(written(tmp_path, bank=replaced(f"while True:\n            {READ}", loop)))
    stop.touch()
    assert answer.code == 64
    assert "bank.py:19: Bank yields nothing: it still runs after 0.2 s" in answer.err


def test_a_built_in_workload_takes_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('name = "x"\n[checks]\nmodel = "set"\n')
    answer = run(tmp_path / "x.toml")
    assert answer.code == 64
    assert "x.toml:3: [checks] model: the workload 'log' has its own rules; leave it out" in answer.err


def test_the_simulation_names_the_workloads_that_it_has(tmp_path: Path) -> None:
    simulated = replaced('world = "process"', 'world = "simulation"')
    answer = run(
        written(
            tmp_path,
            campaign=lambda text: simulated(text.replace('path = "."', 'name = "brownout"')).partition("[[cell]]")[0],
        )
    )
    assert answer.code == 64
    assert "[workload] kind 'bank.py:Bank' has no clients in the simulation world; there are: " in answer.err


def test_the_test_of_the_page_passes_without_a_run(tmp_path: Path) -> None:
    written(tmp_path)
    assert_tests_pass(tmp_path, "test_bank.py")
