"""`brownout schema`: prints the JSON Schema of a campaign, of gate.toml or of system.toml, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Final

from orchestrator.command.shared.declaration import Command
from orchestrator.errors import EXIT_PASS

FILES: Final = ("campaign", "gate", "system")


def main(options: argparse.Namespace) -> int:
    """Print the schema."""
    from orchestrator.command.shared.file_schemas import file_schema

    print(json.dumps(file_schema(options.file), indent=1))
    return EXIT_PASS


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", choices=FILES, default=FILES[0], metavar="FILE", help=f"one of {', '.join(FILES)} (campaign)"
    )


COMMAND: Final = Command(
    name="schema",
    place=132,
    summary="print the JSON Schema of a campaign, of gate.toml or of system.toml",
    description="""\
Prints the JSON Schema (draft 7) of a campaign's file, of a policy (gate) or of a system's description (system). An
editor of TOML that knows it completes keys, shows their meaning and marks wrong ones while you write.

  brownout schema > campaign.schema.json
  brownout schema gate > gate.schema.json

Editors with Taplo (such as "Even Better TOML" of VS Code) use it for a file whose first line is

  #:schema ./campaign.schema.json

The schema knows each key alone. `brownout run FILE --dry-run` also checks how keys fit each other and the system.
""",
    options=_options,
    main=main,
)
