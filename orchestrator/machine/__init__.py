"""What worlds share of the machine they are on: SSH, the sandbox, control groups, system calls, locks, playbooks."""
