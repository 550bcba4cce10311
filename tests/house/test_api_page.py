"""docs/api.md has every name of `brownout_api` with its docstring, and is up to date."""

import brownout_api
from brownout_api import testing
from docs.generators.api import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.api"


def test_every_name_has_a_section_with_a_text() -> None:
    names = {*brownout_api.__all__, *(f"testing.{name}" for name in testing.__all__)}
    sections = dict(section.split("\n\n", 1) for section in page().split("\n## ")[1:])
    assert names <= sections.keys()
    assert [name for name, text in sections.items() if not text.strip() or text.startswith("None")] == []
