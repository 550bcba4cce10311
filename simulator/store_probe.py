"""A probe of the simulated object store, as a nemesis sends it: one operation, and what it resulted in."""

from __future__ import annotations

from broker.tiered.object_store import StoreError, chunks_of
from simulator.object_store import SimulatedObjectStore

PREFIX = "probe/"
DONE = "done"


async def probe(store: SimulatedObjectStore, operation: str, name: str) -> str:
    """`DONE`, or the store's reason for an error. `operation`: put or list. `name`: of the probe's object, which is
    removed, also a part of it."""
    try:
        if operation == "put":
            await store.put(name, chunks_of([b"probe"]))
        else:
            await store.list(PREFIX)
    except StoreError as error:
        return str(error)
    finally:
        store.objects.pop(name, None)
    return DONE


async def shows_new(store: SimulatedObjectStore, name: str) -> bool:
    """Whether a listing has an object that was put just before; the object is removed."""
    await store.put(name, chunks_of([b"probe"]))
    listed = await store.list(PREFIX)
    await store.delete(name)
    return name in {each.name for each in listed}
