"""Faults of a campaign's own, from its file to the gate: what docs/own-faults.md says."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from tests.orchestrator.stored_campaign import Answer, ask
from tests.orchestrator.users_tests import assert_tests_pass

TUTORIAL, PAGE = (
    (PROJECT_ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("your-system", "own-faults")
)
BLOCK = re.compile(r"^```\w+ file=my-tests/(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = dict(BLOCK.findall(TUTORIAL + PAGE))
(STEPS,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = (
    f'name = "flip"\n[topology]\nworld = "process"\n[system]\npath = "."\n[workload]\nkind = "register"\nclients = 1\n'
    f'keys = 2\nrate = 20\nduration_s = 2\n{STEPS}[[nemesis.step]]\ndo = "wait"\nunfenced = "n1"\n'
)


def written(directory: Path, change: Callable[[str], str] = str, campaign: Callable[[str], str] = str) -> Path:
    """The files of both pages, with changes of the fault's and of the campaign's."""
    assert ask("init", directory / "my-tests").code == 0
    for name, text in FILES.items():
        path = directory / "my-tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text({"flip.py": change, "flip.toml": campaign}.get(name, str)(text))
    (directory / "my-tests" / "my-server").chmod(0o755)
    return directory / "my-tests" / "flip.toml"


def run(path: Path, *options: str) -> Answer:
    store = path.parent.parent / "store"
    return ask("run", path, "--store", store, "--engine", "in-process", "--no-plots", *options)


def journal(path: Path) -> list[dict[str, Any]]:
    (file,) = path.parent.parent.glob("store/flip/*-main-*/history/journal.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.rotating(13, among="real-time campaigns")
def test_the_example_of_the_page_passes_and_its_text_is_stored(tmp_path: Path) -> None:
    path = written(tmp_path)
    answer = run(path)
    assert answer.code == 0, answer
    faults = [line for line in journal(path) if line["event"] == "fault_injected"]
    evidence = [line["evidence"] for line in faults if "the first byte is" in line["proof"]]
    assert evidence
    (description,) = tmp_path.glob("store/flip/*-main-1/run.toml")
    content = tomllib.loads(description.read_text())
    assert content["fault_kinds"] == {"flip.py": FILES["flip.py"]}
    assert content["nemesis"]["faults"] == ["flip-bit", "kill"]
    path.with_name("flip.py").unlink()
    assert ask("gate", tmp_path / "store", "--again", "--engine", "in-process").code == 0


UNPROVEN: dict[str, tuple[Callable[[str], str], str]] = {
    "no evidence": (
        lambda text: text.replace("healthy is None or", "True or"),
        "evidence() shows nothing of the fault",
    ),
    "an exception": (lambda text: text.replace("^ 1)", "^ one)"), "flip.py:15: NameError: name 'one' is not defined"),
    "a heal without an effect": (
        lambda text: text.replace("self.write(node, self.healthy[node.name])", "pass"),
        "flip.py:FlipBit: after heal() there still is evidence: the first byte is 122",
    ),
}


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.parametrize("unproven", UNPROVEN)
def test_a_fault_or_heal_without_evidence_leaves_a_script_unknown(tmp_path: Path, unproven: str) -> None:
    change, message = UNPROVEN[unproven]
    path = written(tmp_path, change, lambda _: SCRIPT)
    answer = run(path)
    assert answer.code == 2, answer
    assert message in answer.out


WRONG: dict[str, tuple[Callable[[str], str], Callable[[str], str], str, str]] = {
    "no such file": (str, lambda text: text.replace("flip.py:", "none.py:"), "kinds", "none.py: No such file"),
    "no such class": (str, lambda text: text.replace(":FlipBit", ":Flip"), "kinds", "flip.py has no Flip"),
    "no class named": (str, lambda text: text.replace(":FlipBit", ""), "kinds", 'of the form "parser.py:Class"'),
    "a syntax error": (lambda text: text.replace("def heal", "def"), str, "kinds", "flip.py:23: "),
    "a built-in name": (lambda text: text.replace('"flip-bit"', '"kill"'), str, "kinds", "'kill' is the name of"),
    "the name of a step": (lambda text: text.replace('"flip-bit"', '"wait"'), str, "kinds", "'wait' is the name of"),
    "two of one name": (
        str,
        lambda text: text.replace('"flip.py:FlipBit"', '"flip.py:FlipBit", "./flip.py:FlipBit"'),
        "kinds",
        "'flip-bit' is the name of another",
    ),
    "a kind that is not declared": (
        str,
        lambda text: text.replace('kinds = ["flip.py:FlipBit"]\n', ""),
        "faults",
        "'flip-bit' is not known",
    ),
    "an unused kind that is required": (
        str,
        lambda text: text.replace('faults = ["flip-bit", "kill"]', 'faults = ["kill"]'),
        "required_faults",
        "'flip-bit' can never happen",
    ),
    "a step that is not declared": (
        str,
        lambda _: SCRIPT.replace('kinds = ["flip.py:FlipBit"]\n', ""),
        'do = "flip-bit"',
        "'flip-bit' is not known",
    ),
    "the simulation": (
        str,
        lambda text: text.replace('"process"', '"simulation"'),
        "kinds",
        "nodes of the simulation world run no commands",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kind_ends_the_command_before_anything_starts(tmp_path: Path, wrong: str) -> None:
    change, campaign, at, message = WRONG[wrong]
    path = written(tmp_path, change, campaign)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(at))
    answer = run(path)
    assert answer.code == 64, answer
    assert message in answer.err
    assert f"{path}:{line}: " in answer.err
    assert not (tmp_path / "store").exists()


def test_the_test_of_the_page_passes_without_a_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert_tests_pass(path.parent, "test_flip.py")


def test_the_simulation_refuses_signals(tmp_path: Path) -> None:
    path = tmp_path / "signal.toml"
    step = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "kill"\nnode = "n1"\nsignal = "TERM"\n'
    path.write_text(f'name = "signal"\n[topology]\nworld = "simulation"\n{step}')
    answer = run(path)
    assert answer.code == 64
    assert "step 1 (kill n1 signal=TERM): processes of the simulation world get no signals" in answer.err


def test_the_simulation_refuses_own_faults_that_are_asked_of_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, campaign=lambda text: text.replace('[system]\npath = "."\n', "").replace("register", "log")
    )
    path.write_text(re.sub(r"(?m)^(clients|keys) = .*\n", "", path.read_text()))
    answer = run(path, "--world", "simulation")
    assert answer.code == 64
    assert "[nemesis] kinds has faults of its own" in answer.err
