"""A foreign history with changed fields, forms or words is judged, or is refused.

The properties are over changes of valid histories. Any other exception than ForeignError would reach the user.
"""

import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.foreign.judgement import judge
from history.foreign import jepsen_edn, json_lines, porcupine
from history.foreign.history import ForeignError, ForeignHistory
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.foreign_files import edn, polls, sends
from tests.analysis.foreign_files import porcupine as porcupine_log

Lines = list[dict[str, Any]]

ON_LOGS: Final[Lines] = [
    {"absent": "marker", "topic": "log", "partition": 0, "first": 1},
    {"f": "append", "topic": "log", "partition": 0, "value": 0, "type": "ok", "inv": 10, "ret": 14, "offset": 0},
    {"f": "append", "topic": "log", "partition": 0, "value": 1, "type": "info", "inv": 15, "error": "timed out"},
    {"type": "invoke", "id": 1, "f": "append", "topic": "log", "partition": 0, "value": 2, "inv": 16, "acks": 1},
    {"type": "ok", "id": 1, "ret": 20, "offset": 2},
    {"f": "read", "topic": "log", "partition": 0, "from": 0, "records": [[0, 0], [2, 2]], "type": "ok", "inv": 21}
    | {"ret": 30, "lo": 3, "hi": 3, "session": 1},
    {"f": "end", "topic": "log", "partition": 0, "end": 3, "type": "ok", "inv": 31, "ret": 40, "phase": "final"},
]
ON_REGISTERS: Final[Lines] = [
    {"f": "write", "key": "k1", "value": 17, "type": "ok", "inv": 10, "ret": 14, "endpoint": "h:1"},
    {"f": "read", "key": "k1", "value": 17, "type": "ok", "inv": 15, "ret": 16},
    {"f": "cas", "key": "k1", "expected": 17, "new": 18, "type": "ok", "inv": 19, "ret": 21},
    {"f": "cas", "key": "k1", "expected": 17, "new": 19, "type": "fail", "error": "mismatch", "inv": 22, "ret": 23},
    {"type": "invoke", "id": "a", "f": "write", "key": "k1", "value": 20, "inv": 24},
    {"f": "read", "key": "k2", "value": None, "type": "ok", "inv": 27, "ret": 28, "phase": "final"},
]
OF_LOGS: Final = edn(*sends("0 0 1", "0 1 2", "1 0 3"), *polls("{0 [[0 1] [1 2]]}", "{1 [[0 3]]}"))
OF_REGISTERS: Final = edn(
    (0, "invoke", "write", "1"),
    (0, "ok", "write", "1"),
    (1, "invoke", "read", "nil"),
    (1, "ok", "read", "1"),
    (0, "invoke", "cas", "[1 2]"),
    (0, "fail", "cas", "[1 2]"),
    (2, "invoke", "cas", "[1 3]"),
    (2, "info", "cas", "[1 3]"),
)
OF_KEYS: Final = edn((0, "invoke", "write", "[:x 1]"), (0, "ok", "write", "[:x 1]"), (1, "invoke", "read", "[:x nil]"))
OF_ETCD: Final = porcupine_log(
    "0 invoke write 1",
    "0 ok write 1",
    "1 invoke read nil",
    "1 ok read 1",
    "2 invoke cas [1 2]",
    "2 info cas :timed-out",
)

INTEGERS: Final = st.sampled_from([-1, 0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30])
JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | st.sampled_from(["", "ok", "fail", "marker", "k1", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["f", "", "0"]), inner, max_size=2),
    max_leaves=4,
)
FORMS: Final = r"""
nil true -1 0 1 2 9223372036854775807 9223372036854775808 1e309 ##NaN 1/2 1N 2.5M \a "x" #inst"2020" #_ ^
:a/b :ok :info :fail :invoke :read :write :send :poll [] {} #{} () [[0]] [0[1]] {0[[0,1]]} [:send,0,[0,1]]
[:x,1] [1,2,3]
"""
TOKENS: Final = st.sampled_from(FORMS.split())
TOKEN: Final = re.compile(r'"[^"]*"|:?[\w.+-]+|[\[\]{}]')
bounded = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def changed_lines(draw: st.DrawFn) -> str:
    """JSON lines with some fields changed, removed, renamed or moved, and some lines left out or repeated."""
    lines = deepcopy(draw(st.sampled_from([ON_LOGS, ON_REGISTERS])))
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        name = draw(st.sampled_from(sorted(line) or ["f"]))
        match draw(st.sampled_from(["change", "change", "change", "remove", "rename", "repeat", "leave out"])):
            case "change":
                line[name] = draw(JSON_VALUES)
            case "remove":
                line.pop(name, None)
            case "rename":
                line[draw(st.sampled_from(["f", "type", "value", "key", "absent", "id", "clock", "x"]))] = line.pop(
                    name, 0
                )
            case "repeat":
                lines.insert(draw(st.integers(0, len(lines))), deepcopy(line))
            case _ if len(lines) > 1:
                del lines[number]
    return "".join(json.dumps(line) + "\n" for line in lines)


@st.composite
def changed_tokens(draw: st.DrawFn, texts: list[str]) -> str:
    """A text with some tokens replaced, removed or swapped."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 2))):
        tokens = list(TOKEN.finditer(text))
        token = draw(st.sampled_from(tokens))
        other = draw(TOKENS | st.just("") | st.sampled_from([each.group() for each in tokens]))
        text = text[: token.start()] + other + text[token.end() :]
    return text


def judged_or_refused(
    suffix: str, content: str, read: Callable[[Path, Path], ForeignHistory], upper_bound: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path, directory = Path(name, f"history{suffix}"), Path(name, "result")
        directory.mkdir()
        path.write_text(content, encoding="utf-8", errors="surrogatepass")
        with suppress(ForeignError):
            judgement = judge(read(path, directory), upper_bound=upper_bound, budget=1_000)
            assert (judgement.verdict == "pass") == bool(judgement.certified)
            assert judgement.verdict != "fail" or judgement.anomalies
            assert judgement.verdict != "unknown" or judgement.doubts


@bounded
@given(changed_lines(), st.sampled_from([None, "log", "register"]), st.sampled_from(UPPER_BOUNDS))
def test_changed_json_lines_are_judged_or_refused(content: str, model: str | None, upper_bound: str) -> None:
    judged_or_refused(".jsonl", content, lambda path, place: json_lines.read([path], model, place), upper_bound)


@bounded
@given(changed_tokens([OF_LOGS, OF_REGISTERS, OF_KEYS]), st.sampled_from([None, True, False]))
def test_changed_edn_is_judged_or_refused(content: str, independent: bool | None) -> None:
    judged_or_refused(
        ".edn", content, lambda path, place: jepsen_edn.read(path, place, independent=independent), "strict"
    )


@bounded
@given(changed_tokens([OF_ETCD]))
def test_changed_lines_of_porcupine_are_judged_or_refused(content: str) -> None:
    judged_or_refused(".log", content, porcupine.read, "strict")
