"""Access to the machine that worlds share: SSH, sandbox, control groups, system calls, locks, playbooks."""
