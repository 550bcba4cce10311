"""The inventory world: nodes are hosts that already exist, named by an Ansible inventory, reached by SSH."""
