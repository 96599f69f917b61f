"""The best continuations of every beam, of the best tokens of its rows.

    best_c { σ_j + s_j(v) :  j a row of the beam,  v one of its best tokens }

Each row's tokens come best first, so that the next candidate of a beam is the next token of one of its rows:
they are merged. Of equal sums the earlier row comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import NOUGHT, entry

FIELDS = 7
"""Of a candidate: parent, token, log p, score, total, coverage penalty, key."""


def compiled(version: int) -> Any:
    """The entry, kept on disk under its version."""

    @entry
    def merge_rows(
        keys: Any, tokens: Any, sums: Any, beams: Any, logp: Any, scores: Any, covered: Any, found: Any
    ) -> int:
        """found (beams, candidates, FIELDS) of keys (rows, k); a total of −∞ is no candidate."""
        k, taken = keys.shape[1], np.zeros(len(keys), np.int64)
        for beam in range(len(found)):
            for place in range(found.shape[1]):
                best, row = -np.inf, NOUGHT - 1
                for n in range(beams[beam], beams[beam + 1]):
                    if taken[n] < k and sums[n] + np.float64(keys[n, taken[n]]) > best:
                        best, row = sums[n] + np.float64(keys[n, taken[n]]), n
                out = found[beam, place]
                if row < 0:
                    out[:] = -np.inf
                    continue
                token = tokens[row, taken[row]]
                taken[row] += 1
                out[0], out[1] = row - beams[beam], token
                out[2], out[3] = logp[row, token], scores[row, token]
                out[4], out[6] = sums[row] + out[3], best
                out[5] = covered[row] if covered.size else 0.0
        return version

    return merge_rows


merge_rows = Announced("the ranking of beams (once, seconds)", compiled(version(Path(__file__).parent)))


def ranked(
    beams: Sequence[Sequence[float]],
    count: int,
    covered: Sequence[float],
    keys_NK: NDArray[np.float32],
    tokens_NK: NDArray[np.int64],
    logp_NV: NDArray[np.float32],
    scores_NV: NDArray[np.float32],
) -> list[list[float]]:
    """For every beam the fields of its `count` best candidates, one candidate after another.

    `beams` holds the sums of the rows of each beam; `covered` is empty, or has the penalty of every row.
    """
    sums = np.array([total for totals in beams for total in totals], np.float64)
    ends = np.array([0, *accumulate(map(len, beams))], np.int64)
    found = np.empty((len(beams), count, FIELDS), np.float64)
    merge_rows(keys_NK, tokens_NK, sums, ends, logp_NV, scores_NV, np.array(covered, np.float64), found)
    fields: list[list[float]] = found.reshape(len(beams), -1).tolist()
    return fields
