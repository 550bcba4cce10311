"""`python -m orchestrator`: what `./brownout` becomes once its environment is there."""

import sys

from installation import standard_streams

if __name__ == "__main__":
    standard_streams.prepare()  # before anything is imported that keeps a stream

from orchestrator.command.line import main
from orchestrator.exit import leave

if __name__ == "__main__":
    leave(main(sys.argv[1:]))
