"""Brownout's own broker as a system under test."""
