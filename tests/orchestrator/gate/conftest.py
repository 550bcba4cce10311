"""A stored campaign to decide over."""

import shutil
from pathlib import Path

import pytest

from tests.orchestrator.stored_campaign import StoredCampaign


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> StoredCampaign:
    """Two seeds that pass. Tests change copies only."""
    campaign = StoredCampaign(tmp_path_factory.mktemp("gate") / "store")
    campaign.made()
    return campaign


@pytest.fixture
def campaign(judged: StoredCampaign, tmp_path: Path) -> StoredCampaign:
    shutil.copytree(judged.store, tmp_path / "store", symlinks=True)
    return StoredCampaign(tmp_path / "store", judged.text, list(judged.plans))
