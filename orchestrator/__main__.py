"""`python -m orchestrator`: what `./brownout` becomes once its environment is there."""

import signal
import sys

from installation import standard_streams

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing was started: Ctrl-C during imports ends without a traceback
    standard_streams.prepare()  # before anything is imported that keeps a stream

from orchestrator.command.line import main
from orchestrator.exit import leave

if __name__ == "__main__":
    leave(main(sys.argv[1:]))
