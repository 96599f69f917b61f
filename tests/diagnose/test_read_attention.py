import pytest
import torch

import unspool as us
from unspool.diagnose.text_attention import read_attention, source_attention, token_strings
from unspool.testing import bigram
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
SIZES = {"vocab_size": TEXT.vocab_size, "width": 8, "heads": 2, "inner_width": 8}


def translator(dropout=0.0):
    torch.manual_seed(0)
    config = us.models.TransformerSeq2SeqConfig(**SIZES, encoder_layers=1, decoder_layers=2, dropout=dropout)
    return config.build(TEXT).eval()


def test_every_row_gives_all_of_its_attention():
    ids, said = TEXT.encode("abc"), TEXT.encode("fed.")
    found = read_attention(translator(), ids, said)
    assert list(found) == ["source", "encoder", "decoder"]
    assert [len(found[kind].layers) for kind in found] == [2, 1, 2]
    for looks in found.values():
        for alpha_HTS in looks.layers:
            assert alpha_HTS.shape == (2, len(looks.queries), len(looks.keys))
            torch.testing.assert_close(alpha_HTS.sum(-1), torch.ones(alpha_HTS.shape[:2]))
    assert found["source"].queries == tuple("fed.")


def test_steps_tell_the_last_layer_averaged_over_heads():
    model, ids, said = translator(), TEXT.encode("abc"), TEXT.encode("fed.")
    (told,) = source_attention(model, ids, said)["source"].layers
    torch.testing.assert_close(told[0], read_attention(model, ids, said)["source"].layers[-1].mean(0))


def test_dropout_sleeps_while_a_model_is_watched():
    model, ids, said = translator(dropout=0.5), TEXT.encode("abc"), TEXT.encode("fed.")
    expected = read_attention(model, ids, said)["decoder"].layers[-1]
    model.train()
    torch.testing.assert_close(read_attention(model, ids, said)["decoder"].layers[-1], expected)
    assert model.training


def test_a_model_without_attention_has_no_maps():
    assert read_attention(bigram([[0.5, 0.5]] * 2), [0, 1], []) == {}
    summed = (
        us.models.RNNSeq2SeqConfig(vocab_size=TEXT.vocab_size, width=8, context_kind="last")
        .build(TEXT)
        .eval()
    )
    assert read_attention(summed, TEXT.encode("ab"), TEXT.encode("c")) == {}


@pytest.mark.parametrize(("text", "shown"), [(None, ("<3>",)), (TEXT, None)])
def test_tokens_are_shown(text, shown):
    assert token_strings(text, [3]) == (shown or (TEXT.show(3),))
