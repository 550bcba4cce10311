"""The tutorial in docs/your-system.md: its files and commands give the documented results, and its tables agree with
the code."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from installation.files import PROJECT_ROOT
from systems import Deployed, load_system
from tests.systems.places import place

PAGE = (PROJECT_ROOT / "docs/your-system.md").read_text(encoding="utf-8")
DEADLINE_S = 1200.0


class Block(NamedTuple):
    language: str
    options: dict[str, str]
    text: str


def blocks(page: str = PAGE) -> list[Block]:
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [Block(language, dict(word.split("=") for word in more.split()), text) for language, more, text in found]


def write_files(page: str, directory: Path) -> None:
    """The files of the page, in the directory."""
    for block in blocks(page):
        if "file" in block.options:
            path = directory / block.options["file"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)


def rows(section: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    first = text[text.index("|---") :].split("\n\n", 1)[0]
    lines = [line for line in first.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.rotating(13, among="real-time campaigns")
def test_the_commands_of_the_tutorial_print_the_documented_output(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    brownout = programs / "brownout"
    brownout.write_text(f'#!/bin/sh\nPYTHONPATH={PROJECT_ROOT} exec {sys.executable} -m orchestrator "$@"\n')
    brownout.chmod(0o755)
    away = tmp_path / "away"
    away.mkdir()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for block in blocks():
        if "file" in block.options:
            path = away / block.options["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "sh":
            done = subprocess.run(
                ["sh", "-ec", block.text], cwd=away, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert done.returncode == int(block.options.get("exit", 0)), block.text + done.stdout + done.stderr
            if done.returncode == 1:
                assert "stale-register-read" in done.stdout


def test_every_block_that_is_not_run_is_valid_toml() -> None:
    fragments = [block for block in blocks() if block.language == "toml" and not block.options]
    assert fragments
    for block in fragments:
        tomllib.loads(block.text)


def test_every_documented_name_can_be_used_in_templates(tmp_path: Path) -> None:
    names = [name for row in rows("Templates") for name in re.findall(r"`([^`]+)`", row[0])]
    assert {"node.name", "settings", "system_dir", "python_path"} <= set(names)
    words = ", ".join(f'"{{{{ {name} }}}}"' for name in names)
    (tmp_path / "system.toml").write_text(
        f'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = {{ client = 1 }}\ncommand = ["true", {words}]\n'
    )
    deployed = Deployed(load_system("x", directory=tmp_path), ("server",), "cluster")
    node = place(1)
    given = dict(zip(names, deployed.service(node, [node]).command[1:], strict=True))
    assert given["system_dir"] == str(tmp_path)
    assert given["node.ports.client"] == "1"


def test_nodes_elsewhere_have_the_directory_in_another_place(tmp_path: Path) -> None:
    (tmp_path / "system.toml").write_text(
        'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = { client = 1 }\n'
        'command = ["{{ system_dir }}/x"]\n'
    )
    deployed = Deployed(load_system("x", directory=tmp_path), ("server",), "cluster")
    there = place(1, is_local=False)
    assert deployed.service(there, [there]).command == ("/opt/brownout/system/x",)
