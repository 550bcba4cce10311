"""The inventory world: nodes are existing hosts, listed in an Ansible inventory and reached by SSH."""
