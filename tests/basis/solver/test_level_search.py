import numpy as np

from unspool.basis.solver.level_search import over_all, over_head, over_head_beside, over_sample
from unspool.basis.solver.proof_attempts import ProofAttempts
from unspool.basis.verifier import check


def attempts(factors, ranks, tau=0.1):
    return ProofAttempts(factors, factors.dist.order_N[ranks], tau)


def test_a_head_rejects_and_does_not_accept(factors):
    cases = attempts(factors(0), [0, 1, 500, 900, 2000])
    left = over_head(cases, 512, cases.open()).run(10)
    decided = [case for case in cases.cases if case.verdict is not None]
    assert {case.token for case in decided} >= {case.token for case in cases.cases[2:]}
    assert not any(case.verdict for case in decided)
    assert all(case.verdict is None for case in left)


def test_a_sample_accepts_and_does_not_reject(factors):
    cases = attempts(factors(0), [0, 1, 2, 500, 900])
    level = over_sample(cases, 256, cases.open(), {})
    left = level.run(15)
    decided = [case for case in cases.cases if case.verdict is not None]
    assert decided
    assert all(case.verdict for case in decided)
    # what the sample balances leaves the search, and is remembered with where it stood
    rejected = [case for case in cases.cases[3:] if case.verdict is None]
    assert rejected
    assert not set(rejected) & set(left)
    assert {case.token for case in rejected} <= set(level.snapshots)


def test_all_rows_do_both(factors):
    cases = attempts(factors(0), [0, 1, 2, 500, 900])
    over_all(cases, cases.open(), {}).run(40)
    assert [bool(case.verdict) for case in cases.cases if case.verdict is not None].count(True) >= 1
    assert any(case.verdict is not None and not case.verdict for case in cases.cases)


def test_many_tokens_get_the_verdicts_of_one_by_one(factors):
    ranks = np.arange(0, 400, 8)
    together = attempts(factors(2), ranks, 0.2)
    over_head(together, 1024, together.open()).run(20)
    alone = []
    for rank in ranks:
        single = attempts(factors(2), [rank], 0.2)
        over_head(single, 1024, single.open()).run(20)
        alone += single.cases
    for a, b in zip(together.cases, alone, strict=True):
        if a.verdict is not None and b.verdict is not None:
            assert a.verdict.accepted == b.verdict.accepted
    assert sum(case.verdict is not None for case in together.cases) >= len(ranks) // 2


def test_rows_beside_the_head_help_it_reject(factors, model):
    """Tokens near the boundary: 256 rows cannot balance them, but can with others on their ends."""
    work, tau = factors(1), 0.3
    tokens = work.dist.order_N[4:60]
    plain, helped = ProofAttempts(work, tokens, tau), ProofAttempts(work, tokens, tau)
    over_head(plain, 256, plain.open()).run(30)
    sampled = over_sample(helped, 256, helped.open(), {})
    sampled.run(15)
    cases = [case for case in helped.open() if case.token in sampled.snapshots]
    over_head_beside(helped, 256, 5000, cases, sampled.snapshots).run(30)
    alone = {case.token for case in plain.cases if case.verdict is not None}
    with_others = [case for case in cases if case.verdict is not None]
    assert {case.token for case in with_others} - alone
    for case in with_others:
        assert not case.verdict
        assert check(case.verdict.certificate, model.W, work.dist.p, tau)
