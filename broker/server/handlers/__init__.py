"""What each request means: one module per subject, each a small class over the rooms that it asks."""
