"""Our answers to the histories that other checkers publish, beside theirs.

    python -m benchmarks.public_histories DIRECTORY

`DIRECTORY` has checkouts of jepsen-io/knossos, ligurio/elle-cli, jepsen-io/elle and anishathalye/porcupine, each below
the name of its repository. `brownout check` judges each file with the model for which it is published. The expected
answer is that of the tool's own tests. A file that is absent is named.
"""

import argparse
import contextlib
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orchestrator.command.line import main as brownout

FAIL, PASS, UNKNOWN = "fail", "pass", "unknown"


class Published(NamedTuple):
    """Histories of one tool with one answer."""

    pattern: str
    answer: str
    options: tuple[str, ...]
    ours: str = ""
    """Our answer, where it is known to differ (docs/foreign.md says why)."""


PUBLISHED: Final = (
    Published("knossos/data/cas-register/good/*.edn", PASS, ("--model", "cas-register")),
    Published("knossos/data/cas-register/bad/*.edn", FAIL, ("--model", "cas-register")),
    Published(
        "knossos/data/multi-register/good/*.edn", PASS, ("--model", "multi-register", "--initial", "{:x 0 :y 0}")
    ),
    Published("knossos/data/mutex/bad/*.edn", FAIL, ("--model", "mutex")),
    Published("porcupine/test_data/kv/*-ok.txt", PASS, ("--model", "key-value", "--format", "jepsen-edn")),
    Published("porcupine/test_data/kv/*-bad.txt", FAIL, ("--model", "key-value", "--format", "jepsen-edn")),
    Published("elle/histories/paper-example.edn", FAIL, ("--model", "list-append")),
    Published("elle/histories/huge-scc.edn", FAIL, ("--model", "list-append")),
    Published("elle/histories/si-without-g-single.edn", FAIL, ("--model", "list-append")),
    Published(
        "elle-cli/histories/elle/*-gh-30.edn", FAIL, ("--model", "list-append", "--consistency-model", "serializable")
    ),
    Published("elle-cli/histories/elle/paper-example.*", FAIL, ("--model", "list-append")),
    Published("elle-cli/histories/elle/rw-register.*", PASS, ("--model", "rw-register"), FAIL),
    Published("elle-cli/histories/jepsen/long-fork.edn", FAIL, ("--model", "rw-register")),
    Published("elle-cli/histories/jepsen/counter.*", PASS, ("--model", "counter-bounds"), UNKNOWN),
    Published("elle-cli/histories/jepsen/set.edn", PASS, ("--model", "set")),
    Published("elle-cli/histories/jepsen/set_full.*", FAIL, ("--model", "set-full", "--no-independent")),
    Published("elle-cli/histories/jepsen/bank.*", PASS, ("--model", "bank")),
    Published("elle-cli/histories/jepsen/bank-neg.edn", PASS, ("--model", "bank"), UNKNOWN),
    Published("elle-cli/histories/jepsen/bank-negative-balances.json", FAIL, ("--model", "bank")),
    Published("elle-cli/histories/jepsen/bank-tidb.edn", FAIL, ("--model", "bank")),
    Published("elle-cli/histories/knossos/cas-register/good/*", PASS, ("--model", "cas-register")),
    Published("elle-cli/histories/knossos/cas-register/bad/*", FAIL, ("--model", "cas-register")),
    Published("elle-cli/histories/knossos/mutex/bad/*", FAIL, ("--model", "mutex")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    differing = 0
    for published in PUBLISHED:
        paths = sorted(directory.glob(published.pattern))
        answers = dict(zip(paths, _answers(paths, published), strict=True))
        others = [path.name for path, answer in answers.items() if answer != (published.ours or published.answer)]
        differing += len(others) + (not paths)
        counts = ", ".join(f"{number} {answer}" for answer, number in Counter(answers.values()).items()) or "absent"
        print(f"{published.pattern}: {published.answer}; ours: {counts}{'; differs: ' if others else ''}{others or ''}")
    return int(differing > 0)


def _answers(paths: list[Path], published: Published) -> Iterator[str]:
    """The verdicts; `refused` for a file that is not a history."""
    for path in paths:
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as output:
            brownout(["check", "--json", "--out", scratch, *published.options, str(path)])
        results = json.loads(output.getvalue() or "[]")
        yield results[0]["verdict"] if results else "refused"


if __name__ == "__main__":
    raise SystemExit(main())
