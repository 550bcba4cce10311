"""`brownout completion`: prints a script that completes commands and options in a shell."""

import argparse
from typing import Final

import shtab

from orchestrator.command.shared.declaration import Command

SHELLS: Final = ("bash", "zsh", "fish")


def main(options: argparse.Namespace) -> int:
    """Print the script for a shell; returns 0."""
    from orchestrator.command.line import parser

    print(shtab.complete(parser(), options.shell))
    return 0


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


COMMAND: Final = Command(
    name="completion",
    place=135,
    summary="print a script that completes commands and options in a shell",
    description="""\
Prints the script. It covers all commands, options and fixed values, and file names elsewhere.

  source <(brownout completion bash)                                        bash, this session
  brownout completion bash > ~/.local/share/bash-completion/completions/brownout
  brownout completion zsh > "${fpath[1]}/_brownout"
  brownout completion fish > ~/.config/fish/completions/brownout.fish
""",
    options=_options,
    main=main,
)
