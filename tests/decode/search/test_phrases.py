from hypothesis import given, strategies as st

from unspool.decode.search.constrained_beam import PhraseProgress

token = st.integers(0, 2)
phrases = st.lists(st.lists(token, min_size=1, max_size=4).map(tuple), min_size=1, max_size=3)


def after(some, tokens):
    progress = PhraseProgress.begin(some)
    for one in tokens:
        progress = progress.push(one)
    return progress


def holds(tokens, phrase):
    return any(tuple(tokens[at : at + len(phrase)]) == phrase for at in range(len(tokens)))


def test_by_hand():
    start = PhraseProgress.begin([(1, 1, 2), (3,)])
    assert (start.needed, start.wanted) == (4, [1, 3])
    two = start.push(1).push(1)
    assert (two.needed, two.wanted) == (2, [2, 3])
    # A third 1 breaks nothing: the last two still begin the phrase.
    assert two.push(1).needed == 2
    assert two.push(0).needed == 4
    done = two.push(2)
    assert (done.missing, done.needed, done.wanted) == (((3,),), 1, [3])
    assert done.push(3).needed == 0


def test_phrases_inside_others_come_with_them():
    assert PhraseProgress.begin([(1, 2), (0, 1, 2, 3), (1, 2), (3,)]).phrases == ((0, 1, 2, 3),)
    assert PhraseProgress.begin([]).needed == 0


@given(phrases, st.lists(token, max_size=12))
def test_missing_is_what_the_text_does_not_hold(some, tokens):
    progress = after(some, tokens)
    assert set(progress.missing) == {p for p in PhraseProgress.begin(some).phrases if not holds(tokens, p)}
    assert (progress.needed == 0) == all(holds(tokens, phrase) for phrase in some)


@given(phrases, st.lists(token, max_size=12))
def test_some_wanted_token_always_lowers_what_is_needed_and_nothing_lowers_it_without_being_wanted(
    some, tokens
):
    progress = after(some, tokens)
    lower = [one for one in range(3) if progress.push(one).needed < progress.needed]
    assert set(lower) <= set(progress.wanted)
    assert bool(lower) == (progress.needed > 0)


@given(phrases, st.lists(token, max_size=12))
def test_what_is_needed_is_never_more_than_all_phrases(some, tokens):
    progress = after(some, tokens)
    assert 0 <= progress.needed <= PhraseProgress.begin(some).size
