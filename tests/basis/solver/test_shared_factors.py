from unspool.basis.solver.proof_attempts import SharedFactors


def test_everything_is_made_once(factors):
    work = factors(0)
    assert work.head(512) is work.head(512)
    assert work.sampled(256) is work.sampled(256)
    assert work.balance(512) is work.balance(512)
    assert work.balance(512).metric is work.head(512)
    assert work.whole is work.whole
    assert work.least_squares is work.least_squares


def test_the_first_level_has_about_two_rows_per_unknown_and_not_too_few(factors, white, model):
    assert factors(0).first == 256
    few = model.p(0) * 0
    few[:7] = 1 / 7
    assert SharedFactors(white, few).first == 7


def test_larger_levels_grow_from_smaller_ones(factors):
    work = factors(0)
    small = work.head(256)
    assert work._part(1024) is small
    assert work._part(100) is None
    assert len(work.head(1024).rows.tokens_S) > len(small.rows.tokens_S)
