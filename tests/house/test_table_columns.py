"""docs/tables.md describes every column of every table, and is up to date."""

import pytest

from docs.generators.tables import PAGE, TABLES, columns, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.tables"


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_a_text(name: str) -> None:
    assert columns(name)
    assert [column for column, _, text in columns(name) if not text or "|" in text] == []
    assert f"<!-- {name}: " in page()
