"""Campaigns for tests, made from text."""

from pathlib import Path

from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import parse
from systems.toml_tables import TomlSource

HEAD = 'name = "x"\n'


def campaign(text: str, *, head: str = HEAD) -> Campaign:
    """Parse a campaign; errors name the file `c.toml`."""
    return parse(TomlSource("c.toml", head + text), Path("campaigns/x.toml"))
