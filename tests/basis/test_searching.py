import numpy as np

from unspool.basis.proving import Proving
from unspool.basis.searching import over_all, over_head, over_sample


def proving(bench, ranks, tau=0.1):
    return Proving(bench, bench.dist.order_N[ranks], tau)


def test_a_head_rejects_and_does_not_accept(bench):
    cases = proving(bench(0), [0, 1, 500, 900, 2000])
    left = over_head(cases, 512, cases.open()).run(10)
    decided = [case for case in cases.cases if case.verdict is not None]
    assert {case.token for case in decided} >= {case.token for case in cases.cases[2:]}
    assert not any(case.verdict for case in decided)
    assert all(case.verdict is None for case in left)


def test_a_sample_accepts_and_does_not_reject(bench):
    cases = proving(bench(0), [0, 1, 2, 500, 900])
    searching = over_sample(cases, 256, cases.open())
    left = searching.run(15)
    decided = [case for case in cases.cases if case.verdict is not None]
    assert decided
    assert all(case.verdict for case in decided)
    # what the sample balances leaves the search, and is remembered with where it stood
    rejected = [case for case in cases.cases[3:] if case.verdict is None]
    assert rejected
    assert not set(rejected) & set(left)
    assert {case.token for case in rejected} <= set(searching.snapshots)


def test_all_rows_do_both(bench):
    cases = proving(bench(0), [0, 1, 2, 500, 900])
    over_all(cases, cases.open(), {}).run(40)
    assert [bool(case.verdict) for case in cases.cases if case.verdict is not None].count(True) >= 1
    assert any(case.verdict is not None and not case.verdict for case in cases.cases)


def test_many_tokens_get_the_verdicts_of_one_by_one(bench):
    ranks = np.arange(0, 400, 8)
    together = proving(bench(2), ranks, 0.2)
    over_head(together, 1024, together.open()).run(20)
    alone = []
    for rank in ranks:
        single = proving(bench(2), [rank], 0.2)
        over_head(single, 1024, single.open()).run(20)
        alone += single.cases
    for a, b in zip(together.cases, alone, strict=True):
        if a.verdict is not None and b.verdict is not None:
            assert a.verdict.accepted == b.verdict.accepted
    assert sum(case.verdict is not None for case in together.cases) >= len(ranks) // 2
