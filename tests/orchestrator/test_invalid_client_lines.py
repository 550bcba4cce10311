"""A client in any language with lines that are not operations: the run names file and line, and ends its processes."""

import json
from pathlib import Path

import pytest

from orchestrator.command.line import main
from tests.campaign_text import campaign_text
from tests.systems.test_your_system import blocks

CAMPAIGN = campaign_text(
    "garbled",
    system={"path": "."},
    topology={"nodes": 1, "world": "process"},
    workload={"kind": "register", "clients": 1, "keys": 1, "rate": 40, "duration_s": 0.5},
    client={"client_command": ["./other-client"]},
    # however slow the machine is
    checks={"min_ok": 1, "min_share": 0.05},
)


def write_my_tests(directory: Path) -> dict[str, str]:
    """The system of docs/your-system.md in this directory; the page's files by name."""
    files = {block.options["file"]: block.text for block in blocks() if "file" in block.options}
    for name in ("my-server", "system.toml", "my_system.py", "other-client"):
        (directory / name).write_text(files[f"my-tests/{name}"])
    for name in ("my-server", "other-client"):
        (directory / name).chmod(0o755)
    return files


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("as_it_stands", "garbled", "complaint"),
    [
        ('"value": new}', '"value": str(new)}', '"value" is "'),
        ("    record.write(json.dumps(fields)", '    record.write("{" + json.dumps(fields)', "not JSON"),
        ('note(type="ok"', 'note(colour="red", type="ok"', "colour"),
    ],
    ids=["a text for a number", "no JSON", "a field that there is not"],
)
def test_an_invalid_line_is_named_with_file_and_line_and_all_processes_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_it_stands: str, garbled: str, complaint: str
) -> None:
    files = write_my_tests(tmp_path)
    client = files["my-tests/other-client"]
    assert as_it_stands in client
    (tmp_path / "other-client").write_text(client.replace(as_it_stands, garbled))
    (tmp_path / "garbled.toml").write_text(CAMPAIGN)
    store = tmp_path / "store"
    command = ["run", str(tmp_path / "garbled.toml"), "--store", str(store), "--engine", "in-process", "--quiet"]

    assert main(command) == 2

    (run,) = [path.parent for path in store.glob("garbled/*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["verdict"] == "unknown"
    said = [reason for reason in verdict["reasons"] if reason.startswith("client-1.jsonl:")]
    assert complaint in said[0], verdict["reasons"]
    assert "client-1.jsonl:" in capsys.readouterr().out
    assert running_below(tmp_path) == []


def running_below(directory: Path) -> list[str]:
    """The command lines of processes that name a file there."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words:
            lines.append(words.replace("\0", " "))
    return lines
