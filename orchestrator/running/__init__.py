"""Makes the runs of a campaign: phases, faults, steps, clients, and observation of the cluster from outside."""
