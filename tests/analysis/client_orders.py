"""What clients saw of whole logs and sent to them, from operations in memory: the reference of the check by ranges."""

import numpy as np
import pyarrow as pa

from analysis.core.evidence import ACK, NONE, gather, lay_out
from analysis.core.explain import Key
from analysis.core.replica_evidence import Appends, ClientOrder
from analysis.core.rows import rows_of, sent_again
from history.record.schemas import FAIL


def client_orders(operations: pa.Table) -> dict[Key, ClientOrder]:
    """The operations' view of each partition's log; for contradictory operations, the log checker's choice."""
    rows = rows_of(operations)
    spans = lay_out(rows, None)
    orders: dict[Key, ClientOrder] = {}
    for part, evidence in zip(spans.part.tolist(), gather(rows, spans, "lower-bound-only"), strict=True):
        indices = np.flatnonzero(evidence.value != NONE)
        order = ClientOrder(indices + evidence.start, evidence.value[indices], (evidence.flags[indices] & ACK) != 0)
        key, earlier_order = rows.keys[part], orders.get(rows.keys[part])
        orders[key] = order if earlier_order is None else earlier_order.joined(order)
    return orders


def appends_of(operations: pa.Table) -> dict[Key, Appends]:
    """What was sent to each partition according to the operations."""
    rows = rows_of(operations)
    repeated_values = operations["value"].to_numpy()[sent_again(operations)]
    appends: dict[Key, Appends] = {}
    for part, key in enumerate(rows.keys):
        bound = rows.bound.value[rows.bound.part == part]
        columns = rows.loose.value, rows.loose.type, rows.loose.offset
        loose, type_, named = (column[rows.loose.part == part] for column in columns)
        queries = rows.queries
        ends = np.flatnonzero((queries.part == part) & queries.final & ~queries.is_read & (queries.lo >= 0))
        last = ends[np.argmax(queries.inv[ends])] if len(ends) else -1
        appends[key] = Appends(
            sent=np.concatenate((bound, loose)),
            refused=loose[type_ == FAIL],
            loose=loose[type_ != FAIL],
            end=int(queries.lo[last]) if last >= 0 else -1,
            answered=loose[named >= 0],
            again=repeated_values,
        )
    return appends
