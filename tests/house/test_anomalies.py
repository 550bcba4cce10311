"""docs/anomalies.md is up to date, and no two checkers mean different things by one name."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import checkers
from analysis.checker_registry import CHECKERS, CLASSES, REASONS, classes_of, discover, reasons_of
from analysis.core.anomaly import AnomalyKind, Promise
from analysis.doubt import Reason
from docs.generators.anomalies import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.anomalies"


def test_every_checker_declares_a_sentence_for_each_anomaly() -> None:
    assert {"partition logs", "replicas", "services"} <= {checker.name for checker in CHECKERS}
    kinds = [kind for checker in CHECKERS for kind in checker.anomalies]
    assert {kind.name for kind in kinds} == set(CLASSES)
    assert [kind.name for kind in kinds if not kind.meaning.endswith(".") or "\n" in kind.meaning] == []


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (AnomalyKind("gap", Promise("XX", "x"), "Another."), "gap is of class GAP and, for other, of XX"),
        (AnomalyKind("other", Promise("GAP", "x"), "Another."), "class GAP stands for two promises"),
    ],
)
def test_one_name_means_one_thing(kind: AnomalyKind, complaint: str) -> None:
    other = replace(CHECKERS[0], name="other", anomalies=(kind,))
    with pytest.raises(ValueError, match=complaint):
        classes_of([*CHECKERS, other])


def test_every_reason_has_a_code_and_a_sentence_and_one_code_means_one_thing() -> None:
    assert [code for code in REASONS if re.fullmatch("[a-z]+(-[a-z]+)*", code) is None] == []
    assert [reason for reason in REASONS.values() if not reason.meaning.endswith(".")] == []
    assert all(checker.reasons for checker in CHECKERS)
    other = replace(CHECKERS[0], name="other", reasons=(Reason("too-few-changes", "Another."),))
    with pytest.raises(ValueError, match="the code too-few-changes stands for two reasons: Another"):
        reasons_of([*CHECKERS, other])


NEW = """
from analysis.checker import Checker, Outcome
from analysis.core.anomaly import AnomalyKind, Promise

CHECKER = Checker(
    "tea", "Is it warm?", 25, (AnomalyKind("cold-tea", Promise("TEA", "tea is warm"), "The tea is cold."),),
    lambda run: Outcome("pass", "warm"),
)
"""


def test_a_new_checker_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tea.py").write_text(NEW)
    monkeypatch.setattr(checkers, "__path__", [*checkers.__path__, str(tmp_path)])
    try:
        found = discover()
    finally:
        sys.modules.pop("analysis.checkers.tea", None)
    names = [checker.name for checker in found]
    assert names.index("replicas") < names.index("tea") < names.index("services")
    assert classes_of(found)["cold-tea"] == "TEA"
