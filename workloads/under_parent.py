"""`python -m workloads.under_parent PARENT-PID PROGRAM ...`: becomes the program; the kernel kills it when the parent
ends for any reason."""

import os
import sys

from workloads.control import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: cannot be started: {error.strerror}")
