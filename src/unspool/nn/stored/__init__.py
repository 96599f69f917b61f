"""Weights as they are stored: packed into few bits, restored a few rows at a time."""
