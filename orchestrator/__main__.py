"""`python -m orchestrator`: what `./brownout` becomes once its environment is there."""

from __future__ import annotations

import sys

from orchestrator.command.leaving import leave
from orchestrator.command.line import main

if __name__ == "__main__":
    leave(main(sys.argv[1:]))
