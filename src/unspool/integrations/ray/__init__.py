"""Generate for whole corpora with Ray Data, on one machine or a cluster.

    corpus files → blocks of some hundred lines → actors, each with its own model → one part file per block

A block is read, processed and written as a unit; blocks with a part file are skipped when a job is resumed.
"""
