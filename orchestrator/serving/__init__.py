"""Serves a store's pages over HTTP, and shows the invocation that is under way."""
