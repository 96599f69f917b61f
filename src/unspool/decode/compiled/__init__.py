"""Sampling from what the truncation rules leave, compiled (numba): `decode/shortlist`, row by row.

Whoever imports a file of this room has asked first whether numba is there.
"""
