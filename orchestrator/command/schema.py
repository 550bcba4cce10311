"""`brownout schema`: prints the JSON Schema of a campaign's file, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Final

from orchestrator.command.shared.declaration import Command
from orchestrator.errors import EXIT_PASS


def main(options: argparse.Namespace) -> int:
    """Print the schema."""
    from orchestrator.campaign.schema import campaign_schema

    del options
    print(json.dumps(campaign_schema(), indent=1))
    return EXIT_PASS


def _options(command: argparse.ArgumentParser) -> None:
    del command  # it has none


COMMAND: Final = Command(
    name="schema",
    place=132,
    summary="print the JSON Schema of a campaign's file",
    description="""\
Prints the JSON Schema (draft 7) of a campaign's file. An editor of TOML that knows it completes keys, shows their
meaning and marks wrong ones while you write.

  brownout schema > campaign.schema.json

Editors with Taplo (such as "Even Better TOML" of VS Code) use it for a file whose first line is

  #:schema ./campaign.schema.json

The schema knows each key alone. `brownout run FILE --dry-run` also checks how keys fit each other and the system.
""",
    options=_options,
    main=main,
)
