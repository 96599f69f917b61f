"""The lab: every claim of the documents that this library stands on, measured again; one file per claim.

    from unspool.lab.claims import CLAIMS
    from unspool.lab.running import run

`unspool lab list | run | report` does the same on the command line.
"""
