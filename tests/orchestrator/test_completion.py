"""`brownout completion`: scripts that shells accept."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.orchestrator.stored_campaign import ask


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "brownout.bash"
    path.write_text(ask("completion", "bash").out)
    return path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ga"], ["gate"]),
        (["run", "--wor"], ["--world"]),
        (["run", "--world", "sim"], ["simulation"]),
        (["nodes", "u"], ["up"]),
    ],
)
def test_bash_completes_commands_options_and_values(script: Path, words: list[str], found: list[str]) -> None:
    call = 'source "$1"; shift; COMP_WORDS=(brownout "$@"); COMP_CWORD=$#; _shtab_brownout; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", call, "bash", script, *words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_scripts(shell: str, tmp_path: Path) -> None:
    answer = ask("completion", shell)
    assert answer.code == 0
    assert "gate" in answer.out
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(answer.out)
        subprocess.run([shell, "-n", path], check=True)


def test_an_unknown_shell_is_wrong_usage() -> None:
    assert ask("completion", "tcl").code == 64
