from unspool.serve.page.routes import NOTHING, Exhibits


def test_nothing_is_shown_unless_it_is_given():
    assert Exhibits() == NOTHING
    assert (NOTHING.ratings, NOTHING.findings) == (None, ())
