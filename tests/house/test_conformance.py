"""docs/conformance.md is true: every rule is listed, every mark names a rule, the page is up to date."""

from broker.mutants import MUTANTS
from docs.generators.conformance import PAGE, marks, page, rules


def test_every_mark_and_every_mutant_names_a_rule() -> None:
    known = {rule["id"] for rule in rules()}
    assert len(known) == len(rules()) > 100
    assert set(marks()) <= known
    assert {mutant.rule for mutant in MUTANTS.values()} <= known


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.conformance"
