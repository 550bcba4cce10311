from pathlib import Path

import pytest

from tests.analysis_pipeline.stored_quorum import StoredQuorum


@pytest.fixture
def quorum(tmp_path: Path) -> StoredQuorum:
    return StoredQuorum(tmp_path / "run")
