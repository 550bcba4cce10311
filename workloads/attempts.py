"""Observes how often librdkafka sends a record: by default it does not say so.

An *attempt* is one request with a record. With `retries = 0` librdkafka makes one attempt for most records, but not for
all: after NOT_LEADER_OR_FOLLOWER, and when metadata no longer list the broker that has the request, it sends the record
again without counting a retry. It takes for granted that the first broker has not stored the record. A broker may have,
so the record may be in the log twice, after records that were sent later, or although the last attempt was refused.

Theory of operation. With `debug = msg` the library logs how each batch of records ended ("MSGSET"). It sends records
again only after such a line, and puts the line in the queue before it sends them. `poll` serves the queue in order, and
a delivery report comes after the line of the record's last batch. So a record was sent once if, while it was under way,
its partition's batches ended only in ways after which nothing is sent again: without an error, with an error that
counts as a retry, or with a refusal that leaves the leader where it is. Lines of another form, or no lines at all,
prove nothing: then no record counts as sent once.
"""

import re
import sys
from collections import Counter
from typing import Final

DEBUG_CONTEXT: Final = "msg"
"""The value of librdkafka's `debug` with which it logs what `AttemptLog` reads."""

_DEBUG_LEVEL: Final = 10  # of Python's logging, to which confluent-kafka translates librdkafka's level 7
_COUNTED: Final = "MsgPossiblyPersisted"
"""The action after which the next attempt counts as a retry, if the request was sent."""
_LEADER_LOST: Final = "Refresh"
"""The action after which a broker's refusal does not count as a retry."""
_BATCH_ENDED: Final = re.compile(
    r" \[(?P<partition>\d+)\]: MessageSet with \d+ message\(s\) \(.*\) "
    r"(?:delivered$|encountered error: (?P<origin>Broker: )?.* \(actions (?P<actions>[A-Za-z,]*)\))"
)


class AttemptLog:
    """The log of one producer for one topic, as its `logger`. Everything else goes to stderr, as without a logger.

    `also_debug`: debug lines, too."""

    def __init__(self, *, also_debug: bool = False) -> None:
        self._also_debug = also_debug
        self._is_readable = False  # whether a line about a batch has been read
        self._unread = 0  # lines about batches whose form is not known
        self._repeats = Counter[int]()

    def log(self, level: int, _form: str, facility: str, client: str, text: str) -> None:
        """Called by confluent-kafka for each line, in `poll`."""
        if facility == "MSGSET":
            self._batch_ended(text)
        if level > _DEBUG_LEVEL or self._also_debug:
            sys.stderr.write(f"{facility} {client}: {text}\n")

    def repeats(self, partition: int) -> int:
        """How often records of a partition that were under way may have been sent again so far."""
        return self._repeats[partition] + self._unread

    def sent_once(self, partition: int, repeats: int) -> bool:
        """Whether a record whose outcome has just been reported was certainly not sent twice. `repeats`: those of its
        partition before the record was given to the library."""
        return self._is_readable and self.repeats(partition) == repeats

    def _batch_ended(self, text: str) -> None:
        line = _BATCH_ENDED.search(text)
        if line is None:
            self._unread += 1
            return
        self._is_readable = True
        actions = (line["actions"] or "").split(",")
        is_final = line["actions"] is None or _COUNTED in actions or (line["origin"] and _LEADER_LOST not in actions)
        self._repeats[int(line["partition"])] += not is_final
