"""How the basis-aware test is decided: the stages in the order in which they run.

Once for an output matrix: its rows are read (rows), its columns put into fair units (columns), the whole is
whitened (whitening) and kept on disk for the next time (whitened_store).

Once for a distribution: its head is sorted (distribution), and what its tests share, the Lewis metric above
all (lewis_metric), is made when a stage first needs it (shared_factors).

For each token: cascade runs the stages, cheap ones first, until one of them has a proof.

1. least_squares guesses a λ from the most probable rows.
2. douglas_rachford searches λ and multipliers at once; level_search runs it over a head, a sample, all rows.
3. interior_point solves a small problem to the end; reduced_regression makes the large one small, and
   interior_point_search runs both on what the searches left open.

What a stage finds is tried as a proof (proof_attempts): acceptance_proof evaluates a λ, rejection_proof makes
multipliers exact.
"""
