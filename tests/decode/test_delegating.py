from unspool.decode.lockstep import DelegatingModel, original
from unspool.testing import random_table


def test_a_delegating_model_has_the_properties_of_its_model():
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
    assert other.rewindable is None


def test_original_unwraps_all_delegating_models():
    model = random_table(7, seed=1)
    assert (
        original(model)
        is original(DelegatingModel(model))
        is original(DelegatingModel(DelegatingModel(model)))
        is model
    )
