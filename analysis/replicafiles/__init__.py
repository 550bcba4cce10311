"""Reads the files in which a system keeps its replicas; `formats.py` lists the known formats."""
