"""Verifiers of certificates: one for logs, one for registers. They share no code with the checkers."""
