"""Mutations that add operations which no checker of the run reads: they do not count as checked."""

import json
from collections.abc import Mapping
from typing import Any, Final

from history.record.client_files import left_by
from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Stored, phase
from tests.mutations.streams import OPERATIONS

ON_REGISTER: Final = {"f": "read", "key": "k1", "value": 77, "type": "ok"}
ON_LOG: Final = {"f": "end", "topic": "log", "partition": 0, "end": 7, "type": "ok"}
CLIENT: Final = "elsewhere"


def took_part(run: Stored, *operations: Mapping[str, Any]) -> None:
    """A client in another language took part, did this under load, and ended in order."""
    directory, lines = run / OPERATIONS, run.lines()
    at = next(index for index, line in enumerate(lines) if phase("main")(line)) + 1
    when = {key: lines[at - 1][key] for key in ("t", "wall")}
    timed = [{**each, "inv": when["t"], "ret": when["t"]} for each in operations]
    (directory / f"{CLIENT}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in timed))
    (run / f"clients/{CLIENT}.log").touch()
    lines[at:at] = [
        when
        | {"event": "client", "client": CLIENT, "role": "client", "process": 99, "session": 1}
        | {"producers": [9000, 500]},
        when | {"event": "client_ended", "client": CLIENT, "exit_code": 0, "files": left_by(directory, CLIENT)},
    ]
    run.write_lines(lines)


def _catalog(base: str, operation: Mapping[str, Any]) -> Catalog:
    catalog = Catalog(f"operations of another shape than the {base}'s", base=base)
    catalog.add("a client elsewhere had one", lambda run: took_part(run, operation), unknown("which no checker reads"))
    return catalog


CATALOGS: Final = (
    *(_catalog(base, ON_REGISTER) for base in ("log", "group", "simulated")),
    _catalog("register", ON_LOG),
)
