"""docs/faults.md lists every kind of fault, and is up to date."""

from docs.generators.faults import PAGE, page
from nemeses import KINDS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.faults"


def test_the_page_has_every_kind_of_fault() -> None:
    assert [name for name in KINDS if f"| `{name}` |" not in page()] == []
