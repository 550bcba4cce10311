"""One file for each kind of fault. A file added here is found by `nemeses.registry`; nothing else lists the kinds."""
