"""The kinds of fault, a class for each. `nemeses.registry` finds a class added here; nothing else lists the kinds."""
