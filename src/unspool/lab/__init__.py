"""The lab: claims of the papers and lectures behind this library, reproduced on small models.

    from unspool.lab.claims import CLAIMS
    from unspool.lab.running import run

`unspool lab list | run | report` does the same on the command line.
"""
