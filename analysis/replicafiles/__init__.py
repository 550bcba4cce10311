"""Reads the files in which a system keeps its replicas; `formats.py` names the formats that are known."""
