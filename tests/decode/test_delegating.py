from unspool.decode.delegating import DelegatingModel, SameTokens, original
from unspool.testing import random_table


def test_it_says_of_itself_what_the_model_would():
    model = random_table(7, seed=1)
    other = DelegatingModel(model)
    for name in (
        "vocab_size",
        "context",
        "tokenizer",
        "is_encoder_decoder",
        "source_vocab_size",
        "source_tokenizer",
        "output_matrix",
    ):
        assert getattr(other, name) == getattr(model, name)
    assert other.rewindable is None  # what it can do is another question


def test_the_same_tokens_are_no_same_matrix():
    class Other(SameTokens):
        model = random_table(7, seed=1)

    assert (Other().vocab_size, Other().tokenizer, Other().is_encoder_decoder) == (7, None, False)
    assert Other().output_matrix is Other().rank_limit is None


def test_the_original_is_found_behind_all_who_stand_in():
    model = random_table(7, seed=1)
    assert (
        original(model)
        is original(DelegatingModel(model))
        is original(DelegatingModel(DelegatingModel(model)))
        is model
    )
