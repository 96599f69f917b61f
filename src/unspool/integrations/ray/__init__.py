"""Corpora through Ray Data: a pool of actors, on one machine or on a cluster of them.

    corpus files → blocks of some hundred lines → actors, each with its own model → one part file a block

A block is the unit of everything: it is read, answered and written as one, and whoever finds its part file
need not do it again.
"""
