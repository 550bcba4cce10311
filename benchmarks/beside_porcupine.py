"""Our decision and Porcupine's over its 102 etcd logs, in one run: answers, CPU time and time of both.

    python -m benchmarks.beside_porcupine [--repeat N]

Needs Go, and the module's source through Go's own module proxy. Porcupine decides the logs in its own tests, whose
source also states each known answer; both sides read the files. Ours additionally writes the operations, a certificate
of each pass, which it verifies, or the few operations of a fail. The times of `brownout check` as users call it, with
the result and plots, are printed separately.
"""

import argparse
import contextlib
import io
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from analysis.foreign.judgement import judge
from history.foreign.porcupine import read
from orchestrator.command.line import main as brownout

MODULE: Final = "github.com/anishathalye/porcupine"
VERSION: Final = "v1.3.1"
BUDGET: Final = 400_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("go") is None:
        raise SystemExit("the program go is missing: Porcupine is written in Go")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        source = _go(place, "list", "-m", "-f", "{{.Dir}}", MODULE)
        tests = place / "porcupine.test"
        _go(place, "test", "-c", "-o", str(tests), MODULE)
        answers = known_answers(Path(source))
        own = {path: _decide(path, place) for path in answers}
        wrong = [path.name for path, is_correct in answers.items() if own[path] != ("pass" if is_correct else "fail")]
        print(f"{len(answers)} logs, {sum(answers.values())} of them linearizable; ours differs in {wrong or 'none'}")
        for name, work in {
            "Porcupine: read and decide": lambda: _run_tests(tests, Path(source)),
            "ours: read, decide, certify and verify": lambda: [_decide(path, place) for path in answers],
            "brownout check: the same with tables and plots": lambda: _check(answers, place),
        }.items():
            _measure(name, work, options.repeat)


def known_answers(source: Path) -> Mapping[Path, bool]:
    """By log, whether it is linearizable, as Porcupine's own tests state."""
    text = (source / "porcupine_test.go").read_text(encoding="utf-8")
    found = re.findall(r"checkJepsen\(t, (\d+), (true|false)\)", text)
    return {source / f"test_data/jepsen/etcd_{int(number):03d}.log": answer == "true" for number, answer in found}


def _go(place: Path, *words: str) -> str:
    if not (place / "go.mod").exists():
        (place / "go.mod").write_text(f"module beside\ngo 1.21\nrequire {MODULE} {VERSION}\n", encoding="utf-8")
        _go(place, "mod", "download", MODULE)
    return subprocess.run(
        ["go", *words], cwd=place, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout.strip()


def _run_tests(tests: Path, source: Path) -> None:
    words = [str(tests), "-test.run", "^TestEtcdJepsen", "-test.count", "1"]
    subprocess.run(words, cwd=source, check=True, stdout=subprocess.DEVNULL)


def _decide(path: Path, place: Path) -> str:
    with tempfile.TemporaryDirectory(dir=place) as draft:
        return judge(read(path, Path(draft)), upper_bound="strict", budget=BUDGET).verdict


def _check(paths: Mapping[Path, bool], place: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        brownout(["check", *map(str, paths), "--out", str(place / "checks")])


def _measure(name: str, work: Callable[[], object], repeat: int) -> None:
    cpu, wall = [], []
    for _ in range(repeat):
        began, before = time.monotonic(), _cpu_s()
        work()
        cpu.append(_cpu_s() - before)
        wall.append(time.monotonic() - began)
    print(f"{name}: {statistics.median(cpu):.2f} CPU s, {statistics.median(wall):.2f} s (medians of {repeat})")


def _cpu_s() -> float:
    """User and system time of this process and its ended children."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main()
