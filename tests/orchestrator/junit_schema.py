"""The common part of the schemas of JUnit's XML, as a check of one file."""

import re
from pathlib import Path
from xml.etree import ElementTree

_SUITE = ["properties", "testcase", "system-out", "system-err"]
_NEEDED = {"name", "timestamp", "hostname", "tests", "failures", "errors", "time"}
_ALLOWED = _NEEDED | {"skipped", "id", "package"}
_MOST_BYTES = 5_000_000


def suite_of(path: Path) -> ElementTree.Element:
    """The suite in a file that is valid; `AssertionError` says what is not."""
    assert path.stat().st_size < _MOST_BYTES
    suite = ElementTree.parse(path).getroot()
    assert suite.tag == "testsuite"
    assert _NEEDED <= set(suite.keys()) <= _ALLOWED
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    order = [_SUITE.index(child.tag) for child in suite]
    assert order == sorted(order)
    assert {tag: order.count(_SUITE.index(tag)) for tag in ("properties", "system-out", "system-err")} == {
        "properties": 1,
        "system-out": 1,
        "system-err": 1,
    }
    cases = suite.findall("testcase")
    for case in cases:
        assert set(case.keys()) == {"name", "classname", "time"}
        assert all(case.get(key) for key in ("name", "classname"))
        assert float(case.get("time", "")) >= 0
        assert len(case) <= 1
        for wrong in case:
            assert wrong.tag in ("failure", "error")
            assert {"type", "message"} == set(wrong.keys())
    assert int(suite.get("tests", "")) == len(cases)
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("errors", "")) == len(suite.findall("testcase/error"))
    assert abs(float(suite.get("time", "")) - sum(float(case.get("time", "")) for case in cases)) < 0.01 * (
        len(cases) + 1
    )
    return suite
