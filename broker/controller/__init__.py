"""The metadata of the cluster: its image, the decisions that change it, and the controller that runs them.

`image` is what the committed metadata log says, on every node. `controller`, `partition_elections`, `topics` and
`isr_decisions` are pure: an image and a request in, records and an answer out. `active` runs them one at a time on the
quorum's leader.
"""
