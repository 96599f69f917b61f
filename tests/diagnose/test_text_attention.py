import pytest
import torch

import unspool as us
from unspool.diagnose.text_attention import _classify, attention_maps
from unspool.plots import draw_attention
from unspool.testing import bigram
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
SIZES = {"vocab_size": TEXT.vocab_size, "width": 8, "heads": 2, "inner_width": 8}


def lm():
    torch.manual_seed(0)
    return us.models.TransformerConfig(**SIZES, layers=2).build(TEXT).eval()


def test_heads_by_hand():
    sink = torch.zeros(4, 4)
    sink[:, 0] = 1
    before = torch.zeros(4, 4)
    before[0, 0] = 1
    before[[1, 2, 3], [0, 1, 2]] = 1
    even = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    assert [_classify(0, 0, it).attends_to for it in (sink, before, torch.eye(4), even)] == [
        "the first token",
        "the token before",
        "itself",
        "many tokens",
    ]
    assert _classify(0, 0, even).share == pytest.approx((1 / 3 + 1 / 4) / 2)


def test_every_head_of_a_language_model():
    found = attention_maps(lm(), "abc def.")
    assert [(it.layer, it.head) for it in found.maps] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "".join(found.tokens).endswith("abc def.")
    for it in found.maps:
        assert it.weights_TS.shape == (len(found.tokens),) * 2
        assert it.weights_TS.sum(dim=1).tolist() == pytest.approx([1] * len(found.tokens))
        assert it.weights_TS.triu(1).abs().max() == 0
    assert found.verdict.startswith("4 heads attend: ")


def test_a_model_that_fills_hidden_places_reads_no_bos():
    torch.manual_seed(0)
    model = us.models.MaskedLMConfig(**SIZES, layers=1).build(TEXT).eval()
    found = attention_maps(model, "abcd")
    assert found.tokens == ("a", "b", "c", "d")
    assert (found.maps[0].weights_TS > 0).all()


def test_reading_leaves_the_model_as_it_was():
    model = lm()
    model.train()
    attention_maps(model, "abc")
    assert model.training


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_an_answer_and_its_source(kind, tmp_path):
    torch.manual_seed(0)
    if kind == "transformer":
        config = us.models.TransformerSeq2SeqConfig(**SIZES, encoder_layers=1, decoder_layers=1)
    else:
        config = us.models.RNNSeq2SeqConfig(vocab_size=TEXT.vocab_size, width=8, context_kind="additive")
    found = attention_maps(config.build(TEXT).eval(), "abc", "fed")
    (one,) = found.maps
    assert one.layer is None
    assert one.weights_TS.shape == (len(found.tokens), len(found.sources))
    assert one.weights_TS.sum(dim=1).tolist() == pytest.approx([1] * len(found.tokens), abs=1e-5)
    assert found.sources[:3] == ("f", "e", "d")
    assert "of their attention" in found.verdict
    draw_attention(found, tmp_path / "p.svg")


def test_pictures(tmp_path):
    found = attention_maps(lm(), "abc def.")
    draw_attention(found, tmp_path / "all.svg")
    draw_attention(found, tmp_path / "one.svg", layer=1, head=0)
    draw_attention(found, tmp_path / "layer.svg", layer=1)
    with pytest.raises(ValueError, match="no head 7 in layer 1"):
        draw_attention(found, tmp_path / "x.svg", layer=1, head=7)


def test_models_without_attention_raise():
    with pytest.raises(ValueError, match="does not provide attention weights"):
        attention_maps(bigram([[0.5, 0.5]] * 2), [0, 1, 0])
    with pytest.raises(ValueError, match="needs at least 3"):
        attention_maps(lm(), "")
    with pytest.raises(ValueError, match="leave it out"):
        attention_maps(lm(), "abc", "def")
    pairs = us.models.TransformerSeq2SeqConfig(**SIZES, encoder_layers=1, decoder_layers=1).build(TEXT).eval()
    with pytest.raises(ValueError, match="give the source"):
        attention_maps(pairs, "abc")
    summed = (
        us.models.RNNSeq2SeqConfig(vocab_size=TEXT.vocab_size, width=8, context_kind="last")
        .build(TEXT)
        .eval()
    )
    with pytest.raises(ValueError, match="does not provide attention weights over the source"):
        attention_maps(summed, "abc", "def")
