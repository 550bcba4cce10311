"""Shared parts of the tests of explorations."""

from pathlib import Path

import pytest

from tests.search.imagined import SHORT


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path
