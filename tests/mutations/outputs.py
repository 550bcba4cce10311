"""Changed files of the output of services and clients: only the journal's list of them can reveal the change."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Stored, event

mutation = Catalog("outputs")

SERVICE: Final = "nodes/n2/service.log"
CLIENT: Final = "clients/producer-1.log"
LISTED: Final = event("outputs")

for _name in (SERVICE, CLIENT):
    for _what, _edit in {
        "emptied": lambda _: b"",
        "shortened": lambda data: data[: len(data) // 2],
        "doubled": lambda data: data + data,
        "continued": lambda data: data + b"one line more\n",
    }.items():
        mutation.add(
            f"{_name} {_what}",
            lambda run, name=_name, edit=_edit: run.edit(name, edit),  # type: ignore[misc]
            unknown(_name, "bytes", "journal"),
        )
    mutation.add(f"{_name} missing", lambda run, name=_name: run.remove(name), unknown(_name, "missing"))  # type: ignore[misc]


@mutation(unknown(SERVICE, "bytes"))
def a_service_log_is_another_nodes(run: Stored) -> None:
    run.copy("nodes/n1/service.log", SERVICE)


@mutation(unknown("nodes/n1/service.log"))
def two_service_logs_swapped(run: Stored) -> None:
    run.swap("nodes/n1/service.log", SERVICE)


@mutation(unknown(CLIENT))
def a_clients_output_is_anothers(run: Stored) -> None:
    run.copy("clients/consumer-1.log", CLIENT)


@mutation(unknown("clients/producer-9.log", "is missing in the journal's list of outputs"))
def the_output_of_a_client_that_there_is_not(run: Stored) -> None:
    run.copy(CLIENT, "clients/producer-9.log")


@mutation(unknown("does not list what"))
def the_journal_lists_no_outputs(run: Stored) -> None:
    run.drop_lines(LISTED)


@mutation(unknown(SERVICE, "must be there"))
def the_journal_lists_one_fewer(run: Stored) -> None:
    run.change_lines(LISTED, lambda line: line["files"].pop(SERVICE))


@mutation(unknown("does not list|must be there"))
def the_journal_lists_nothing(run: Stored) -> None:
    run.change_lines(LISTED, lambda line: line.update(files={}))


@mutation(unknown("more than once"))
def the_journal_lists_outputs_twice(run: Stored) -> None:
    line = next(line for line in run.lines() if LISTED(line))
    run.insert_line(LISTED, event="outputs", files=line["files"])
