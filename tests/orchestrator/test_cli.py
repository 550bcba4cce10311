"""The command line: its output and its exit codes."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from broker.protocol.records import Record, build_batch
from orchestrator.campaign.toml_text import dump
from orchestrator.command.line import main, parser

ROOT = Path(__file__).resolve().parents[2]


def test_a_dry_run_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "kip101-scenario2", "--dry-run", "--seeds", "1-2", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(run["cell"], run["seed"]) for run in plan["runs"]] == [
        ("mutated", 1),
        ("fixed", 1),
        ("mutated", 2),
        ("fixed", 2),
    ]
    assert plan["runs"][0]["expect"].startswith("fail (replica-divergence")


@pytest.mark.parametrize(
    ("line", "usage", "near"),
    [
        ("run --sede 3", "brownout run", "--seed"),
        ("run demo --enginee spark", "brownout run", "--engine"),
        ("gate --markdwn", "brownout gate", "--markdown"),
        ("nodes up --filesytem xfs", "brownout nodes up", "--filesystem"),
        ("nodes upp", "brownout nodes", "'up'"),
        ("run --world namespace", "brownout run", "'namespaces'"),
        ("rnu", "brownout", "'run'"),
        ("--versoin", "brownout", "--version"),
    ],
)
def test_an_unknown_name_shows_the_usage_of_its_command_and_the_nearest(
    line: str, usage: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 64
    said = capsys.readouterr().err
    assert f"did you mean {near}?" in said
    assert f"usage: {usage} [" in said


def test_the_documentation_is_listed_printed_and_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    listed = capsys.readouterr().out
    assert "your-system" in listed
    assert "Testing your system" in listed
    assert main(["docs", "your-system"]) == 0
    page = (ROOT / "docs" / "your-system.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == page
    assert main(["docs", "STOP_deadline_s"]) == 0
    assert "your-system:" in capsys.readouterr().out
    assert main(["docs", "your-sytem"]) == 64
    assert "did you mean 'your-system'?" in capsys.readouterr().err


def test_a_campaign_may_start_with_a_byte_order_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = tmp_path / "bom.toml"
    campaign.write_bytes(b"\xef\xbb\xbf" + (ROOT / "campaigns" / "demo.toml").read_bytes())
    assert main(["run", str(campaign), "--dry-run"]) == 0, capsys.readouterr().err


def test_without_an_argument_the_demo_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run"]) == 0
    assert "demo.toml --cell main --seed 1" in capsys.readouterr().out


def test_a_dry_run_accepts_more_seeds_than_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--seeds", "1-1000000000000"]) == 0
    shown = capsys.readouterr().out
    assert "1,000,000,000,000 runs" in shown
    assert "and 999,999,999,960 more" in shown
    assert main(["run", "--seeds", "1-1000000000000"]) == 64
    assert "more than the 100,000 that one invocation makes" in capsys.readouterr().err


def test_a_dry_run_names_the_world_of_its_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--json", "--world", "process", "--seeds", "1-3"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["world"], plan["world_reason"]) == ("process", "the process world was asked for")
    assert [run["seed"] for run in plan["runs"]] == [1, 2, 3]


def test_a_dry_run_refuses_the_same_input_as_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "kip101-scenario1", "--dry-run", "--world", "process"]) == 64
    assert "which the process world cannot do" in capsys.readouterr().err
    assert main(["run", "--dry-run", "--inventory", "nowhere.yml"]) == 64
    assert "nowhere.yml does not exist" in capsys.readouterr().err
    (tmp_path / "hosts").write_text("one ansible_host=192.0.2.1\n")
    assert main(["run", "--dry-run", "--inventory", str(tmp_path / "hosts")]) == 64
    assert "3 nodes wanted" in capsys.readouterr().err


def test_a_closed_pipe_prints_no_error(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(build_batch([Record(0, 1000, None, b"v")], 0, 1))
    for arguments in (["log", "dump", str(tmp_path)], ["run", "--dry-run", "--seeds", "1-90000", "--json"]):
        command = [sys.executable, "-m", "orchestrator", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["run", "nowhere"],
            "nowhere: unknown campaign; give a TOML file, one of chaos-simulated, ",
        ),
        (["run", ""], "the campaign's name is empty; give a TOML file"),
        (["run", "x" * 300, "--dry-run"], "xxx: File name too long; name another path"),
        (["gate", "x" * 300], "xxx: File name too long; name another path"),
        (["replay", "x" * 300], "xxx: File name too long; name another path"),
        (["init", "x" * 300], "File name too long; name another path"),
        (["run", "campaigns"], "campaigns is a directory; give a campaign's TOML file"),
        (["run", "--seed", "-3"], "--seed -3: seeds are whole numbers from 0"),
        (["run", "--seeds", "5-1"], "--seeds 5-1: the first seed of a range is not above the last"),
        (["run", "--seeds", "3-"], "--seeds 3-: write seeds such as 7, 1-20, or 1,3,5-9"),
        (["run", "--seeds", "1,,2"], "--seeds 1,,2: write seeds such as"),
        (["run", "--seeds", "0-99999,1-2"], "100,002 seeds are more than the 100,000 runs"),
        (["run", "--select", "nothing-*", "--dry-run"], "no run has such a name; names are CELL-SEED, such as main-1"),
        (["run", "--seeds", f"0-{(1 << 63) - 1}", "--dry-run"], "seeds are whole numbers from 0, below 2^63 - 1"),
        (["run", "--seeds", f"0-{'9' * 5000}"], "seeds are whole numbers from 0, below 2^63 - 1"),
        (["run", "--seeds", f"0-{(1 << 63) - 2}"], "are more than the 100,000 that one invocation makes"),
        (["run", "--seed", "1", "--seeds", f"0-{1 << 62}"], "are more than the 100,000 that one invocation makes"),
        (["run", "--seed", str(1 << 63), "--dry-run"], "seeds are whole numbers from 0, below 2^63 - 1"),
        (["mutants", "bounce_unseen", "--seeds", f"0-{(1 << 63) - 2}"], "more than 100,000 runs"),
        (["explore", "demo", "--first", str(1 << 63)], "seeds are whole numbers from 0, below 2^63 - 1"),
        (["run", "--cell", "x", "--dry-run"], "unknown cell 'x'"),
        (["run", "--world", "moon"], "argument --world: 'moon' is not known"),
        (["run", "--inventory", "x", "--world", "process"], "--inventory x: the process world has no inventory"),
        (["run", "--world", "inventory"], "give --inventory FILE, or inventory = in [topology]"),
        (["run", "--inventory", "nowhere.yml"], "nowhere.yml does not exist"),
        (["frobnicate"], "argument COMMAND: 'frobnicate' is not known"),
        ([], "the following arguments are required: COMMAND"),
        (["gate", "nowhere"], "nowhere: is neither a directory nor a run in the store"),
        (["analyze", "nowhere"], "nowhere: is neither a directory nor a run in the store"),
        (["log", "dump", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
        (["quorum", "describe", "--bootstrap-server", "here"], "'here' is not of the form host:port"),
        (["quorum", "describe", "--bootstrap-server", "n1:²"], "'n1:²' is not of the form host:port"),
    ],
)
def test_wrong_usage_ends_with_64_and_a_remedy(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["gate", "demo", "--store"], ["run", "demo", "--dry-run", "--store"], ["init"], ["analyze"]]
)
def test_links_that_lead_in_a_circle_are_wrong_usage(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert main([*arguments, str(tmp_path / "circle")]) == 64
    printed = capsys.readouterr().err
    assert "circle" in printed
    assert "Traceback" not in printed


def test_without_java_a_run_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", "demo", "--store", str(tmp_path / "store")]) == 64
    assert "no Java runtime found" in (words := capsys.readouterr().err)
    assert "--engine in-process" in words
    assert not (tmp_path / "store").exists()


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["run", "demo", "--world", "process", "--engine", "in-process", "--quiet"]
    assert main([*arguments, "--store", str(tmp_path / "file")]) == 64
    assert f"{tmp_path / 'file'} cannot be written: Not a directory; give another --store" in capsys.readouterr().err


def test_a_campaign_that_is_wrong_ends_with_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.toml"
    path.write_text('name = "c"\n[workload]\nrat = 5\n')
    assert main(["run", str(path)]) == 64
    assert capsys.readouterr().err == f"brownout: {path}:3: [workload] unknown key 'rat'; did you mean 'rate'?\n"


def test_the_version_option_prints_version_and_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = rf"brownout {declared} \(commit ([0-9a-f]{{12}}(\+changes)?|unknown)\)\n"
    assert re.fullmatch(said, capsys.readouterr().out)


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("run", "analyze", "report", "gate", "doctor", "install-packages", "mutants", "test", "quorum", "log"):
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([name, "--help"])
        assert ended.value.code == 0
        assert "exit codes: 0 pass" in capsys.readouterr().out


def test_the_mutants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--json"]) == 0
    assert "truncate_to_hw" in [mutant["name"] for mutant in json.loads(capsys.readouterr().out)]


def test_mutants_are_not_run_by_accident(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "truncate_to_hw"]) == 64
    assert "--seeds" in capsys.readouterr().err
    assert main(["mutants", "no_such", "--seeds", "1-2"]) == 64
    assert "truncate_to_hw" in capsys.readouterr().err


def test_a_log_is_dumped_as_kafkas_tool_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = build_batch([Record(0, 1000, b"k", b"value"), Record(1, 1000, None, b"v2")], 0, 3)
    second = bytearray(build_batch([Record(2, 1000, None, b"v3")], 2, 4))
    second[-1] ^= 1
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(first + bytes(second) + b"\0" * 100)

    assert main(["log", "dump", str(tmp_path), "--records"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Dumping {segment}"
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith("baseOffset: 0 lastOffset: 1 count: 2")
    assert "partitionLeaderEpoch: 3" in lines[2]
    assert "isvalid: true" in lines[2]
    assert lines[3] == "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 5 payload: 76616c7565"
    assert "partitionLeaderEpoch: 4" in lines[5]
    assert "isvalid: false" in lines[5]
    assert "CRC" in lines[6]
    assert lines[7].startswith("Found bytes that are not a batch: position")

    assert main(["log", "dump", str(segment), "--json"]) == 0
    (dumped,) = json.loads(capsys.readouterr().out)
    assert [batch["isvalid"] for batch in dumped["batches"]] == [True, False]


def test_the_description_of_a_run_is_toml(tmp_path: Path) -> None:
    from orchestrator.campaign.plan import expand
    from orchestrator.campaign.systems import deploy
    from orchestrator.running.runner import describe
    from orchestrator.worlds.base import WorldSpec
    from orchestrator.worlds.process.lab import ProcessWorld
    from tests.orchestrator.campaigns import campaign

    planned = expand(
        campaign(
            '[broker.n1]\n"min.insync.replicas" = 1\n[nemesis]\nkind = "random"\nfaults = ["kill", "power-loss"]\n'
            'optional_faults = ["power-loss"]\n[checks]\nrequired_faults = ["kill"]\n'
        ),
        "s",
    )[0]
    deployed = deploy(planned)
    world = ProcessWorld(WorldSpec("s", tmp_path, 3, deployed))
    content = tomllib.loads(dump(describe(planned, world, deployed, "no root")))
    assert content["checks"]["required_faults"] == ["kill"]
    assert content["nemesis"]["faults"] == ["kill"]
    assert content["limits"][-2:] == [
        "the process world was chosen because no root",
        "not exercised in the process world: power-loss",
    ]
    assert content["settings"]["broker"]["n1"] == {"min.insync.replicas": "1"}
    assert content["replay"] == "./brownout run campaigns/x.toml --cell main --seed 1"
    assert content["versions"]["python"]
