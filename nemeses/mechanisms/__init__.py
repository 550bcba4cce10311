"""How faults are inflicted and proven: what several kinds of fault do through the same part of a world."""
