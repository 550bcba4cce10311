"""The kinds of histories that are neither of registers nor of logs, by the names of their operations.

The names are those of Jepsen's workloads (`jepsen.tests`, `jepsen.checker`, Elle) and of Porcupine's examples.
"""

from collections.abc import Iterable, Mapping
from typing import Final

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "a queue": ("enqueue", "dequeue", "drain", "offer", "take", "push", "pop"),
    "a set or a counter": ("add", "remove", "increment", "inc", "decrement", "dec", "sub"),
    "a bank": ("transfer", "deposit", "withdraw", "balance"),
    "a mutex": ("acquire", "release", "lock", "unlock", "hold"),
    "a key-value store": ("get", "put", "append", "delete", "del"),
    "unique numbers": ("generate",),
    "a set": ("broadcast",),
    "echoes": ("echo",),
    "inserts under a predicate": ("insert",),
    "reads that may be dirty": ("refresh", "strong-read"),
    "an election": ("elect", "leader", "inspect"),
}
MODEL_NAMES: Final = ("mutex", "set", "fifo-queue", "unordered-queue", "counter", "multi-register", "key-value")
"""The sequential models, as `--model` takes them (`analysis.core.models`)."""
PROMISE_NAMES: Final = (
    *("set-full", "total-queue", "counter-bounds", "eventual-counter"),
    *("bank", "unique-ids", "echo"),
)
"""The workloads whose promises need no search, as `--model` takes them (`analysis.core.workload_promises`)."""
TRANSACTION_NAMES: Final = ("list-append", "rw-register")
"""The workloads of transactions, as `--model` takes them (`history.foreign.transaction_rows`)."""
EDN: Final = "jepsen-edn"
JSON: Final = "jepsen-json"
TEXT: Final = "jepsen-text"
NOTATIONS: Final = (EDN, JSON, TEXT)
"""How a history of Jepsen's is written (`history.foreign.jepsen_events`), as `--format` takes it."""
WORKLOADS: Final[Mapping[str, str]] = {
    "lin-kv": "register",
    "lin-mutex": "mutex",
    "txn-list-append": "list-append",
    "txn-rw-register": "rw-register",
    "kafka": "log",
    "broadcast": "set-full",
    "g-set": "set-full",
    "g-counter": "eventual-counter",
    "pn-counter": "eventual-counter",
    "unique-ids": "unique-ids",
    "echo": "echo",
}
"""Maelstrom's workloads, and the model of each."""
STEPS: Final[Mapping[str, str]] = {
    "append": "transactions that append to lists (list-append)",
    "r": "transactions on registers or lists (rw-register or list-append)",
    "w": "transactions on registers (rw-register)",
    "read": "transactions on registers (multi-register)",
    "write": "transactions on registers (multi-register)",
}
"""Of a transaction, by the name of a step."""


def kind_of(f: str) -> str:
    """The kind that has operations of this name; empty if none is known."""
    return next((kind for kind, names in KINDS.items() if f in names), "")


MODELS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("acquire", "release"), ("mutex",)),
    "add": ("set", "counter", "set-full", "counter-bounds", "eventual-counter"),
    "broadcast": ("set-full",),
    "remove": ("set", "set-full"),
    **dict.fromkeys(("enqueue", "dequeue"), ("fifo-queue", "unordered-queue", "total-queue")),
    "drain": ("total-queue",),
    "transfer": ("bank",),
    "generate": ("unique-ids",),
    "echo": ("echo",),
    **dict.fromkeys(("get", "put", "append", "delete"), ("key-value",)),
    **dict.fromkeys(("[:read ...]", "[:write ...]"), ("multi-register",)),
    "[:append ...]": ("list-append",),
    "[:r ...]": ("list-append", "rw-register"),
    "[:w ...]": ("rw-register", "multi-register"),
}
"""The models that judge a history of Jepsen's with an operation or step of this name, as `--model` takes them."""


def refusal(name: str, kind: str, label: str = ":f") -> str:
    """Why a history with this operation is not judged."""
    cause = f"{label} {name} is of {kind}" if kind else f"{label} {name} is of no known kind of history"
    if name in MODELS_OF and label.startswith(":f"):
        return f"{cause}: judge it with --model {' or --model '.join(MODELS_OF[name])}"
    models = "and the models of --model"
    return f"{cause}: only registers (read, write, cas), logs (send, poll, txn with send and poll) {models} are judged"


def refusal_by_model(name: str, model: str, functions: Iterable[str]) -> str:
    """Why a history with this operation is not judged by the model that the user named."""
    return f":f {name}: the model {model} has only the operations {', '.join(functions)}"
