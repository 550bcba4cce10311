"""`brownout init` writes valid files, all of them or none, and overwrites no file."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from installation.files import PROJECT_ROOT
from orchestrator.campaign.parser import load
from orchestrator.command import init
from orchestrator.command.line import main
from orchestrator.errors import EXIT_USAGE, UsageError
from tests.orchestrator.users_tests import assert_tests_pass

NAMES = ["README.md", "chaos.toml", "ci.yml", "client.py", "system.toml"]


@pytest.mark.parametrize("workload", init.WORKLOADS)
def test_init_writes_a_valid_campaign(tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "deep" / "tests"
    assert main(["init", str(there), "--workload", workload]) == 0
    assert sorted(path.name for path in there.iterdir()) == NAMES
    said = capsys.readouterr().out
    assert "--dry-run" in said
    assert main(["run", str(there / "chaos.toml"), "--dry-run"]) == 0
    recipe = yaml.safe_load((there / "ci.yml").read_text())
    steps = [step.get("run", "") for step in recipe["jobs"]["chaos"]["steps"]]
    assert any("brownout run tests/chaos.toml" in step for step in steps)
    assert any("brownout gate store --markdown" in step for step in steps)
    documented = (PROJECT_ROOT / "docs" / "gate.md").read_text().split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(documented.replace("brownout-tests/", "tests/")) == recipe
    assert "@" not in (there / "system.toml").read_text()


def test_the_recipe_holds_for_any_name_of_a_directory(tmp_path: Path) -> None:
    there = tmp_path / "store's: tests #2"
    assert main(["init", str(there)]) == 0
    recipe = yaml.safe_load((there / "ci.yml").read_text())
    lines = [shlex.split(step.get("run", "")) for step in recipe["jobs"]["chaos"]["steps"]]
    assert any(f"{there.name}/chaos.toml" in words for words in lines)


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("orders", "orders"),
        ("Store's: tests #2", "store-s-tests-2"),
        ("latest", "brownout-tests"),
        ("é", "brownout-tests"),
    ],
)
def test_a_campaign_is_called_like_its_directory(tmp_path: Path, directory: str, name: str) -> None:
    """Two of one name would count as one in a store, and the second hide what the first had found."""
    assert main(["init", str(tmp_path / directory)]) == 0
    assert load(tmp_path / directory / "chaos.toml").name == name


def test_without_a_directory_it_makes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert sorted(path.name for path in (tmp_path / "brownout-tests").iterdir()) == NAMES


def test_init_never_overwrites_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 64
    assert "client.py exists already" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("client.py", "mine")]


def test_a_failure_during_init_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        init.write(tmp_path / "new" / "place", {"first": "text", "no/such/directory": "text"})
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file" / "below")]) == 64
    assert "cannot be written" in capsys.readouterr().err


def test_a_directory_name_outside_utf8_is_refused_and_not_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "\udcff")]) == EXIT_USAGE
    assert "its name is not valid UTF-8; name another directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


PARTS = {
    "workload Bank": ["bank.py", "bank.toml", "test_bank.py"],
    "workload UniqueIds2": ["test_unique_ids2.py", "unique_ids2.py", "unique_ids2.toml"],
    "checker HTTPAnswers": ["http_answers.py", "test_http_answers.py"],
    "checker Prompt": ["prompt.py", "test_prompt.py"],
    "checker MyChecker": ["my_checker.py", "test_my_checker.py"],
    "fault FullDisk": ["full_disk.py", "test_full_disk.py"],
}


@pytest.mark.parametrize("asked", PARTS)
def test_a_class_of_a_users_own_is_written_with_a_test_that_passes(
    tmp_path: Path, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    part, name = asked.split()
    (tmp_path / "system.toml").write_text("mine")
    assert main(["init", str(tmp_path), f"--{part}", name]) == 0
    assert f"pytest {tmp_path / 'test_'}" in capsys.readouterr().out
    written = sorted(path.name for path in tmp_path.iterdir() if path.name != "system.toml")
    assert written == PARTS[asked]
    assert_tests_pass(tmp_path, str(tmp_path))


@pytest.mark.parametrize("option", ["--workload", "--checker", "--fault"])
@pytest.mark.parametrize("name", ["bank", "append_log", "", "My-Bank", "É"])
def test_a_name_that_no_class_can_have_is_refused(
    tmp_path: Path, option: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new"), option, name]) == EXIT_USAGE
    assert "the name of your class is needed, such as My" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "asked",
    ["workload Client", "workload Operation", "workload Iterator", "workload Any", "workload Exception", "fault Kill",
     "fault FaultKind", "checker HistoryChecker"],
)  # fmt: skip
def test_a_name_that_its_file_or_brownout_has_is_refused(
    tmp_path: Path, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    part, name = asked.split()
    assert main(["init", str(tmp_path / "new"), f"--{part}", name]) == EXIT_USAGE
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"brownout: --{part} {name}: ")
    assert complaint.endswith("; choose another name\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["Json", "History"])
def test_a_name_of_a_module_of_python_or_brownout_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new"), "--checker", name]) == EXIT_USAGE
    assert f"{name.lower()}.py is a module of Python's or Brownout's; choose another name" in capsys.readouterr().err


def test_a_written_workload_checker_and_fault_are_those_of_a_valid_campaign(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert main(["init", str(tmp_path), "--workload", "Members"]) == 0
    assert main(["init", str(tmp_path), "--checker", "Prompt"]) == 0
    assert main(["init", str(tmp_path), "--fault", "FullDisk"]) == 0
    system, campaign = tmp_path / "system.toml", tmp_path / "chaos.toml"
    system.write_text(system.read_text().replace('workloads = ["register"]', 'workloads = ["own"]'))
    text = re.sub(r"\nkeys = [^\n]*", "", campaign.read_text()).replace('"register" ', '"members.py:Members"')
    text += '[client]\nclient_class = "members.py:MembersClient"\n'
    uses = 'use = ["members.py:MembersChecker", "prompt.py:Prompt"]'
    campaign.write_text(text.replace("[checks]\n", f"[checks]\n{uses}\n"))
    faults = re.sub(
        r"(?m)^faults = .*$", 'kinds = ["full_disk.py:FullDisk"]\nfaults = ["full-disk", "kill"]', campaign.read_text()
    )
    campaign.write_text(re.sub(r"(?m)^optional_faults = .*\n", "", faults))
    assert load(campaign).workload.parameters["own"] == {"reads": 0.5}
    assert load(campaign).nemesis.faults == ("full-disk", "kill")


def test_the_campaign_of_a_written_workload_is_valid_beside_a_system(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == main(["init", str(tmp_path), "--workload", "UniqueIds2"]) == 0
    campaign = load(tmp_path / "unique_ids2.toml")
    assert (campaign.name, campaign.workload.named) == ("unique-ids2", "unique_ids2.py:UniqueIds2")
