"""Expected errors of systems: invalid input of the user, and clusters that do not answer."""


class InputError(Exception):
    """An invalid file or value; the message names `file:line:`, the key, and the remedy.

    A command that ends with it has exit code 64 (wrong usage)."""


class ClusterError(Exception):
    """A cluster did not reach a requested state in time; the message names the expected and the observed state."""
