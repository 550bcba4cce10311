"""The cluster's metadata: its image, the decisions that change it, and the controller that executes them.

`image` is the state that the committed metadata log describes, on every node. `controller`, `partition_elections`,
`topics` and `isr_decisions` are pure: they take an image and a request and return records and an answer. `active`
executes them one at a time on the quorum's leader.
"""
