"""The locale, a closed stream and a closed pipe do not change the exit code of a command."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT

LOCALES = {
    "posix": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "posix-with-encoding": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    "unknown": {"LC_ALL": "xx_XX.KOI8-X", "PYTHONUTF8": "0"},
    "none": {},
}
PRINTS = """
import os, sys
from installation import standard_streams
standard_streams.prepare()
print("gr\\u00fcn \\u2714")
print("gr\\u00fcn \\u2714", file=sys.stderr)
open(sys.argv[1], "w").write("gr\\u00fcn \\u2714")
print(sys.argv[1], os.path.exists(sys.argv[1]), sys.getfilesystemencoding())
"""
INTERRUPTED_WRITE = """
import os, signal, sys
from installation import standard_streams
standard_streams.prepare()
write = os.write
def interrupted(number, data):
    os.write = write
    os.kill(os.getpid(), signal.SIGINT)
    return write(number, data)
signal.signal(signal.SIGINT, lambda *_: print("stopping", file=sys.stderr, flush=True))
os.write = interrupted
print("first operation", file=sys.stderr, flush=True)
"""
SHORT_WRITES = """
import os, sys
from installation import standard_streams
standard_streams.prepare()
write = os.write
os.write = lambda number, data: write(number, data[:3])
print("first operation", file=sys.stderr)
"""


def environment(changed: Mapping[str, str]) -> dict[str, str]:
    """This process's without what says something about languages, with these."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(PROJECT_ROOT), **changed}


@pytest.mark.rotating(4, among="locales")
@pytest.mark.parametrize("changed", LOCALES.values(), ids=LOCALES)
def test_every_character_is_printed_written_and_found_under_any_locale(changed: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "prints.py"
    program.write_text(PRINTS, encoding="utf-8")
    there = tmp_path / "grün ✔ \udcff"
    done = subprocess.run(
        [sys.executable, str(program), str(there)], env=environment(changed), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert there.read_text(encoding="utf-8") == "grün ✔"
    assert done.stdout.splitlines()[-1].endswith(b" True utf-8")
    assert done.stderr.splitlines()[-1] in ("grün ✔".encode(), rb"gr\xfcn \u2714")


def brownout(shell: str, directory: Path, changed: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which `brownout` is the command line."""
    line = f'brownout() {{ "{sys.executable}" -m orchestrator "$@"; }}; set -o pipefail; {shell}'
    return subprocess.run(
        ["bash", "-c", line],
        env=environment(changed or {}),
        cwd=directory,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.rotating(4, among="locales")
@pytest.mark.parametrize("changed", LOCALES.values(), ids=LOCALES)
def test_a_table_with_any_name_is_shown_under_any_locale(changed: dict[str, str], tmp_path: Path) -> None:
    done = brownout("brownout run --dry-run 'größe\n.toml'", tmp_path, changed)
    assert done.returncode == 64, done.stderr
    assert "unknown campaign" in done.stderr
    listed = brownout("brownout mutants && brownout doctor", tmp_path, changed)
    assert listed.returncode == 0, listed.stderr


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("brownout mutants | head -1", 0),
        ("brownout mutants --json 2>&1 | head -1", 0),
        ("brownout mutants >&-", 0),
        ("brownout mutants 2>&-", 0),
        ("brownout mutants <&- >&- 2>&-", 0),
        ("brownout run no-such >&-", 64),
        ("brownout run no-such 2>&-", 64),
        ("brownout run no-such 2>&1 | true", 64),
        ("brownout mutants >/dev/full", 70),
        ("brownout --help >/dev/full", 70),
        ("brownout gate --help >/dev/full", 70),
        ("brownout --version >/dev/full", 70),
        ("brownout mutants 2>/dev/full", 0),
        ("brownout run no-such 2>/dev/full", 64),
    ],
)
def test_a_full_output_stream_does_not_change_the_exit_code(line: str, code: int, tmp_path: Path) -> None:
    done = brownout(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "bug of Brownout" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", ["list", "gate store", "run demo --dry-run", "init"])
def test_a_removed_current_directory_is_named(command: str, tmp_path: Path) -> None:
    done = brownout(f'mkdir gone && cd gone && rmdir "{tmp_path}/gone" && brownout {command}', tmp_path)
    assert done.returncode == 64, done.stderr
    assert "the current directory was removed; change to another one" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("program", "printed"),
    [(INTERRUPTED_WRITE, "stopping\nfirst operation\n"), (SHORT_WRITES, "first operation\n")],
)
def test_standard_error_accepts_a_signal_handlers_line_and_short_writes(program: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment({}), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, printed)


def test_output_to_a_closed_stream_reaches_no_file(tmp_path: Path) -> None:
    made = brownout("brownout init mine >&- 2>&- <&-", tmp_path)
    assert made.returncode == 0
    as_usual = brownout("brownout init usual", tmp_path)
    assert as_usual.returncode == 0
    for path in (tmp_path / "usual").iterdir():
        assert (tmp_path / "mine" / path.name).read_bytes().replace(b"mine", b"usual") == path.read_bytes()


def test_a_pipe_gets_no_escape_codes_from_the_script_for_packages(tmp_path: Path) -> None:
    said = subprocess.run(
        ["bash", str(PROJECT_ROOT / "installation" / "system-packages"), "install", "Not a name"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert said.returncode == 64
    assert said.stderr.startswith(b"brownout: 'Not a name'")
