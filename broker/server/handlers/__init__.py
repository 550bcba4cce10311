"""Handlers of the APIs: one module per subject, each a small class over the parts of the broker that it uses."""
