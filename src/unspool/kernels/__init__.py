"""What compiled code is written in (numba, the extra `fast`): many numbers at once, threads that help.

Whoever imports a file of this room has asked first whether numba is there.
"""
