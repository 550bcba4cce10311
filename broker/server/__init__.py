"""The broker's outside: connections, requests and their handlers, peers, and the node that composes everything."""
