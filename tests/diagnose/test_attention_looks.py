import pytest
import torch

import unspool as us
from unspool.diagnose.text_attention import attention_looks, source_looks, spelled
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
    found = attention_looks(translator(), ids, said)
    assert list(found) == ["source", "encoder", "decoder"]
    assert [len(found[kind].layers) for kind in found] == [2, 1, 2]
    for looks in found.values():
        for alpha_HTS in looks.layers:
            assert alpha_HTS.shape == (2, len(looks.looking), len(looks.looked_at))
            torch.testing.assert_close(alpha_HTS.sum(-1), torch.ones(alpha_HTS.shape[:2]))
    assert found["source"].looking == tuple("fed.")


def test_steps_tell_the_last_layer_averaged_over_heads():
    model, ids, said = translator(), TEXT.encode("abc"), TEXT.encode("fed.")
    (told,) = source_looks(model, ids, said)["source"].layers
    torch.testing.assert_close(told[0], attention_looks(model, ids, said)["source"].layers[-1].mean(0))


def test_dropout_sleeps_while_a_model_is_watched():
    model, ids, said = translator(dropout=0.5), TEXT.encode("abc"), TEXT.encode("fed.")
    expected = attention_looks(model, ids, said)["decoder"].layers[-1]
    model.train()
    torch.testing.assert_close(attention_looks(model, ids, said)["decoder"].layers[-1], expected)
    assert model.training


def test_a_model_without_attention_has_no_maps():
    assert attention_looks(bigram([[0.5, 0.5]] * 2), [0, 1], []) == {}
    summed = (
        us.models.RNNSeq2SeqConfig(vocab_size=TEXT.vocab_size, width=8, context_kind="last")
        .build(TEXT)
        .eval()
    )
    assert attention_looks(summed, TEXT.encode("ab"), TEXT.encode("c")) == {}


@pytest.mark.parametrize(("text", "shown"), [(None, ("<3>",)), (TEXT, None)])
def test_tokens_are_shown(text, shown):
    assert spelled(text, [3]) == (shown or (TEXT.show(3),))
