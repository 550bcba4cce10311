"""How faults are injected and proven: one mechanism for each part of a world, shared by several kinds of fault."""
