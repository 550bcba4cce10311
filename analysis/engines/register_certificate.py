"""Writes the certificate of registers: for each key its operations in an order that explains them, each with its time.

The parts are files of the certificate's directory, which the engine's workers wrote during the check, each with the
keys of a task (`analysis.engines.register_orders`). `registers.json` has the history that the certificate is about, and
for each part its first key and its digest. `analysis/verifiers/register.py` confirms it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from analysis.engines.register import RegisterPlan
from analysis.engines.register_orders import OrderPart
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.shapes import REGISTER

FORMAT: Final = 3
REGISTER_CERTIFICATE_FILE: Final = "registers.json"


def write_register_certificate(directory: Path, run: Path, plan: RegisterPlan, parts: Sequence[OrderPart]) -> Path:
    """Write the certificate of a check of a run's registers that found nothing; returns the path of its claim. `parts`:
    the files in the directory, from `check_and_order`."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "operations": plan.rows,
        "streams": digest_of_streams(run),
        "tables": digest_of_tables(REGISTER, plan.tables),
        "parts": [asdict(part) for part in parts],
    }
    path = directory / REGISTER_CERTIFICATE_FILE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
