import numpy as np

from unspool.basis.solver.cascade import LevelSearch, fix_tail
from unspool.basis.solver.proof_attempts import ProofAttempts
from unspool.basis.verifier import verify_certificate


def attempts(factors, ranks, tau=0.1):
    return ProofAttempts(factors, factors.dist.order_N[ranks], tau)


def test_a_head_rejects_and_does_not_accept(factors):
    candidates = attempts(factors(0), [0, 1, 500, 900, 2000])
    left = LevelSearch(candidates, candidates.factors.head_metric(512), candidates.undecided(), head=512).run(
        10
    )
    decided = [candidate for candidate in candidates.candidates if candidate.verdict is not None]
    assert {candidate.token for candidate in decided} >= {
        candidate.token for candidate in candidates.candidates[2:]
    }
    assert not any(candidate.verdict for candidate in decided)
    assert all(candidate.verdict is None for candidate in left)


def test_a_sample_accepts_and_does_not_reject(factors):
    candidates = attempts(factors(0), [0, 1, 2, 500, 900])
    level = LevelSearch(candidates, candidates.factors.sampled_metric(256), candidates.undecided(), head=256)
    left = level.run(15)
    decided = [candidate for candidate in candidates.candidates if candidate.verdict is not None]
    assert decided
    assert all(candidate.verdict for candidate in decided)
    # what the sample balances leaves the search, and is remembered with where it stood
    rejected = [candidate for candidate in candidates.candidates[3:] if candidate.verdict is None]
    assert rejected
    assert not set(rejected) & set(left)
    assert {candidate.token for candidate in rejected} <= set(level.snapshots)


def test_all_rows_do_both(factors):
    candidates = attempts(factors(0), [0, 1, 2, 500, 900])
    LevelSearch(candidates, candidates.factors.full_metric, candidates.undecided()).run(40)
    assert [
        bool(candidate.verdict) for candidate in candidates.candidates if candidate.verdict is not None
    ].count(True) >= 1
    assert any(candidate.verdict is not None and not candidate.verdict for candidate in candidates.candidates)


def test_many_tokens_get_the_verdicts_of_one_by_one(factors):
    ranks = np.arange(0, 400, 8)
    together = attempts(factors(2), ranks, 0.2)
    LevelSearch(together, together.factors.head_metric(1024), together.undecided(), head=1024).run(20)
    alone = []
    for rank in ranks:
        single = attempts(factors(2), [rank], 0.2)
        LevelSearch(single, single.factors.head_metric(1024), single.undecided(), head=1024).run(20)
        alone += single.candidates
    for a, b in zip(together.candidates, alone, strict=True):
        if a.verdict is not None and b.verdict is not None:
            assert a.verdict.accepted == b.verdict.accepted
    assert sum(candidate.verdict is not None for candidate in together.candidates) >= len(ranks) // 2


def test_rows_beside_the_head_help_it_reject(factors, model):
    """Tokens near the boundary: 256 rows cannot balance them, but can with others on their ends."""
    work, tau = factors(1), 0.3
    tokens = work.dist.order_N[4:60]
    plain, helped = ProofAttempts(work, tokens, tau), ProofAttempts(work, tokens, tau)
    LevelSearch(plain, plain.factors.head_metric(256), plain.undecided(), head=256).run(30)
    sampled = LevelSearch(helped, helped.factors.sampled_metric(256), helped.undecided(), head=256)
    sampled.run(15)
    candidates = [candidate for candidate in helped.undecided() if candidate.token in sampled.snapshots]
    snapshots = sampled.snapshots
    tail = fix_tail(helped, 256, 5000, candidates, snapshots)
    LevelSearch(helped, work.head_metric(256), candidates, snapshots, head=256, tail=tail).run(30)
    alone = {candidate.token for candidate in plain.candidates if candidate.verdict is not None}
    with_others = [candidate for candidate in candidates if candidate.verdict is not None]
    assert {candidate.token for candidate in with_others} - alone
    for candidate in with_others:
        assert not candidate.verdict
        assert verify_certificate(candidate.verdict.certificate, model.W, work.dist.p, tau)
