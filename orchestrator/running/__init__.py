"""Making one run after the other: phases, faults, steps, clients, and the cluster as it is seen from outside."""
