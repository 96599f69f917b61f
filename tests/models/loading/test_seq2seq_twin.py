"""Encoder–decoders of ours, saved as folders of Hugging Face's, and read by both sides."""

from dataclasses import replace

import pytest
import torch

import unspool as us
from unspool.heads import HEADS
from unspool.models.loading.huggingface_export import ARCHITECTURES, export_seq2seq
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

CASES = {
    "bart": ("Bart", {"scale_embedding": True}),
    "marian": ("Marian", {"activation_function": "swish"}),
    "t5": ("T5", {}),
    "t5 1.1": ("T5", {"feed_forward_proj": "gated-gelu"}),
}
SHAPE = TransformerSeq2SeqConfig(
    vocab_size=61, width=16, heads=4, inner_width=24, encoder_layers=1, decoder_layers=2, bos=1, eos=2
)
VASWANI = {"norm": "layer", "norm_place": "post", "bias": True, "activation": "relu"}
OURS = {
    "bart": VASWANI
    | {"positions": "learned", "context": 30, "embed_norm": True, "embed_scale": 1.0, "source_bos": True},
    "bart with a head of its own": VASWANI
    | {"positions": "learned", "context": 30, "embed_norm": True, "source_bos": True, "tied": False},
    "marian": VASWANI | {"positions": "sinusoidal_halves", "context": 30},
    "t5": {"positions": "relative", "activation": "geglu", "embed_scale": 1.0, "head_width": 6},
    "t5 with a head of its own": {"positions": "relative", "embed_scale": 1.0, "tied": False},
}


def made(**changes):
    torch.manual_seed(0)
    model = replace(SHAPE, **changes).build().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


@torch.no_grad()
def said(model):
    source, tokens = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    if isinstance(model, us.models.TransformerSeq2Seq):
        return model(source, torch.tensor([4]), tokens)
    return model(input_ids=source, decoder_input_ids=tokens).logits.log_softmax(-1)


@pytest.mark.parametrize("name", CASES)
def test_what_was_read_is_written_again(make_translator, transformers, tmp_path, name):
    family, changes = CASES[name]
    twin = make_translator(family, **changes)
    ours = twin.load("torch")
    us.save(ours, tmp_path / "again", format="huggingface")
    again = us.load(tmp_path / "again", engine="torch")
    assert again.config == ours.config
    torch.testing.assert_close(said(again), said(ours), atol=1e-5, rtol=0)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    assert type(theirs) is type(twin.model)
    torch.testing.assert_close(said(theirs), said(ours), atol=1e-4, rtol=0)
    assert us.generate(again, "w7 w8", us.Greedy(), max_new_tokens=5).text
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "again")("w7 w8").input_ids == (
        twin.tokenizer("w7 w8").input_ids
    )


@pytest.mark.parametrize("name", OURS)
def test_what_was_built_here_is_a_class_of_theirs(transformers, tmp_path, name):
    ours = made(**OURS[name])
    torch.testing.assert_close(said(us.to_huggingface(ours)), said(ours), atol=1e-4, rtol=0)
    us.save(ours, tmp_path / "saved", format="huggingface")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved").eval()
    assert type(theirs).__name__ == ARCHITECTURES[ours.config.positions][1]
    torch.testing.assert_close(said(theirs), said(ours), atol=1e-4, rtol=0)
    torch.testing.assert_close(said(us.load(tmp_path / "saved")), said(ours), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bart", {"positions": "rotary"}, "positions='rotary' has no Hugging Face twin: only those of BART"),
        ("bart", {"norm_place": "pre"}, "norm_place='pre' has no place in BartForConditionalGeneration"),
        ("bart", {"embed_norm": False}, "embed_norm=False has no place in BartForConditionalGeneration"),
        ("marian", {"embed_scale": 3.0}, "embed_scale=3.0 has no place in MarianMTModel"),
        ("marian", {"source_vocab_size": 9}, "source_vocab_size=9 has no place in MarianMTModel"),
        ("marian", {"activation": "swiglu"}, "activation_function 'swiglu' is unknown"),
        ("marian", {"head": HEADS["mixture"](experts=2)}, "is no softmax of one matrix's products"),
        ("t5", {"bias": True}, "bias=True has no place in T5ForConditionalGeneration"),
        ("t5", {"head": HEADS["softmax"](bias=True)}, "T5's class has no place for a bias of the head"),
        ("t5", {"activation": "gelu_tanh"}, "feed_forward_proj 'gelu_tanh' is unknown"),
    ],
)
def test_what_their_classes_cannot_say_is_refused(tmp_path, name, changes, message):
    with pytest.raises(ValueError, match=message):
        us.save(made(**OURS[name] | changes), tmp_path / "saved", format="huggingface")
    assert not (tmp_path / "saved").exists()


def test_rows_that_nobody_reads_are_zeros_and_factors_are_divided_out():
    bart = export_seq2seq(made(**OURS["bart"]))
    places = bart.weights["model.decoder.embed_positions.weight"]
    assert places.shape == (32, 16)
    assert not places[:2].any()
    model = made(**OURS["t5"])
    t5 = export_seq2seq(model)
    query = model.blocks[0].cross_attention.query.weight
    torch.testing.assert_close(
        t5.weights["decoder.block.0.layer.1.EncDecAttention.q.weight"] * 6**0.5, query.detach()
    )
