from unspool.decode.sharing.stand_in import StandIn
from unspool.testing import random_table


def test_it_says_of_itself_what_the_model_would():
    model = random_table(7, seed=1)
    other = StandIn(model)
    for name in (
        "vocab_size",
        "context",
        "text",
        "answers",
        "source_vocab_size",
        "source_text",
        "output_matrix",
    ):
        assert getattr(other, name) == getattr(model, name)
    assert other.rewindable is None  # what it can do is another question
