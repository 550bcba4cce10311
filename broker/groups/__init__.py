"""Consumer groups, the classic protocol: who is a member, who reads what, and up to where it was read.

Pure: requests and the passing of time in, effects out. No I/O, no clock and no randomness of its own;
`broker.coordinator` does what the effects say.
"""
