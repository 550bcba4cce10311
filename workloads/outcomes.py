"""Classifies an error of an append: it certainly did not happen, or its outcome is unknown.

The deciding rule: `fail` only if *every attempt* to append the record was refused before it could be stored. An attempt
is one request with the record. A client learns how the last attempt ended, and a library may have made others:
librdkafka sends a record again without counting a retry after NOT_LEADER_OR_FOLLOWER, and when metadata no longer list
the broker that has the request. That broker may have stored the record. So a refusal proves something only if the
record is known to have been sent once. No refusal is the same for all attempts: the limit of size is for a batch, which
the next attempt may form of other records, and a broker may differ from the last one in its replicas, clock,
configuration and version.

Every other error is `info`: a timeout, a lost connection, a refusal after the append. In doubt an outcome is `info`,
because a wrong `fail` would make an anomaly of a correct broker's answer, while a wrong `info` only makes the proof a
little weaker.
"""

from typing import Final, Literal

Outcome = Literal["ok", "fail", "info"]

# Kafka's error codes that a broker returns only before it appends.
_REFUSED_BEFORE_APPEND: Final = frozenset(
    {
        2,  # CORRUPT_MESSAGE
        10,  # MESSAGE_TOO_LARGE
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE
        19,  # NOT_ENOUGH_REPLICAS: the check before the append; the one after it has a code of its own
        21,  # INVALID_REQUIRED_ACKS
        29,  # TOPIC_AUTHORIZATION_FAILED
        32,  # INVALID_TIMESTAMP
        35,  # UNSUPPORTED_VERSION
        42,  # INVALID_REQUEST
        43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        87,  # INVALID_RECORD
    }
)


def of_append(error_code: int | None, *, sent_once: bool) -> Outcome:
    """The outcome of an append whose last attempt had this error code (None: it was acknowledged).

    `sent_once`: there was certainly no attempt before.

    The library's own errors (negative codes) are `info`: a record that times out in its queue may have been sent
    before. Only a record that `produce()` itself refuses was certainly never sent, and that has no delivery report.
    """
    if error_code is None:
        return "ok"
    return "fail" if sent_once and error_code in _REFUSED_BEFORE_APPEND else "info"
