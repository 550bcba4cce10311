"""Partition logs: segments of record batches, their indexes, leader epochs, and recovery. All through the Disk port."""
