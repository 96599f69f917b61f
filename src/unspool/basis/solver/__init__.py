"""The solver of the basis-aware test: a cascade of methods that stops at the first proof.

Per output matrix: whitening.py scales and whitens W, and caches the result on disk.

Per distribution: distribution.py sorts its head, and `SharedFactors` (proof_attempts.py) builds the Lewis
metrics (lewis_metric.py) when a stage first needs them.

Per token: cascade.py runs the stages, the cheapest first.

1. Least squares over the most probable rows gives a first λ (douglas_rachford.py).
2. Douglas–Rachford splitting searches for λ and multipliers at once; cascade.py runs it over the head,
   the head and a sample of the tail, and all rows.
3. The interior-point method (interior_point.py) solves the remaining cases on a reduced set of rows.

proof_attempts.py tries each result as a proof: acceptance_proof.py bounds f(λ), rejection_proof.py makes
multipliers exact.
"""
