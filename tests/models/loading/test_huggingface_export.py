"""Exports to Hugging Face folders, read back by transformers and this package."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import unspool as us
from unspool.heads import HEADS, MixtureHeadConfig
from unspool.models.loading.huggingface_export import SEQ2SEQ_ARCHITECTURES, export_to_huggingface
from unspool.models.lora import LoRA, add_adapters, find_adapters
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.tokenization import train_bpe

LLAMA = TransformerConfig(
    vocab_size=9, width=4, layers=1, heads=2, kv_heads=1, head_width=2, inner_width=3, context=8
)


def test_fused_matrices_are_split_by_hand():
    model = LLAMA.build()
    hf = export_to_huggingface(model)
    assert (hf.family, hf.architecture) == ("llama", "LlamaForCausalLM")
    qkv, up = model.blocks[0].attention.qkv.weight, model.blocks[0].feed_forward.up.weight
    layer = "model.layers.0."
    assert torch.equal(hf.weights[layer + "self_attn.q_proj.weight"], qkv[:4])
    assert torch.equal(hf.weights[layer + "self_attn.k_proj.weight"], qkv[4:6])
    assert torch.equal(hf.weights[layer + "self_attn.v_proj.weight"], qkv[6:])
    assert torch.equal(hf.weights[layer + "mlp.gate_proj.weight"], up[:3])
    assert torch.equal(hf.weights[layer + "mlp.up_proj.weight"], up[3:])
    assert "lm_head.weight" not in hf.weights
    assert hf.config["tie_word_embeddings"]


def test_an_export_contains_every_weight_once():
    model = LLAMA.build()
    assert sum(it.numel() for it in export_to_huggingface(model).weights.values()) == sum(
        it.numel() for it in model.parameters()
    )


def test_exports_of_other_families_are_rejected():
    with pytest.raises(
        ValueError, match=r"activation='relu' \(LlamaForCausalLM has 'swiglu'\) cannot be exported"
    ):
        export_to_huggingface(TransformerConfig(**{**vars(LLAMA), "activation": "relu"}).build())


TINY_LLAMA = TransformerConfig(
    vocab_size=300, width=32, layers=2, heads=4, kv_heads=2, head_width=16, inner_width=48, context=64
)
GPT2 = TransformerConfig(
    vocab_size=300,
    width=32,
    layers=2,
    heads=4,
    inner_width=64,
    context=64,
    norm="layer",
    positions="learned",
    activation="gelu_tanh",
    bias=True,
    tied=False,
)


@pytest.fixture
def text():
    return train_bpe(["the cat sat on the mat", "a dog ran to the cat"] * 3, 300)


@pytest.mark.parametrize("config", [TINY_LLAMA, GPT2], ids=["llama", "gpt2"])
def test_transformers_loads_an_export_with_equal_logits(config, text, tmp_path):
    torch.manual_seed(0)
    model = config.build(text).eval()
    us.save(model, tmp_path / "hf", format="huggingface")
    hf_model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    tokens = torch.tensor([text.encode("the cat ran")])
    with torch.no_grad():
        logits = hf_model(tokens).logits
        torch.testing.assert_close(logits, model.head.logits(model.hidden(tokens)), atol=1e-5, rtol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("the cat ran", add_special_tokens=False)["input_ids"] == text.encode("the cat ran")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<bos>", "<eos>")
    assert hf_model.config.eos_token_id == 2
    again = us.load(tmp_path / "hf")
    torch.testing.assert_close(again(tokens), model(tokens))
    assert again.tokenizer.eos_ids == text.eos_ids


def test_adapters_are_merged_in_an_export(text, tmp_path):
    torch.manual_seed(0)
    model = TINY_LLAMA.build(text).eval()
    add_adapters(model, LoRA(rank=2))
    for part in find_adapters(model).values():
        torch.nn.init.normal_(part.lora_b)
    us.save(model, tmp_path / "hf", format="huggingface")
    tokens = torch.tensor([[5, 7, 9]])
    torch.testing.assert_close(us.load(tmp_path / "hf")(tokens), model(tokens), atol=1e-5, rtol=0)


def test_an_export_keeps_the_chat_template(text, tmp_path):
    from dataclasses import replace

    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    us.save(
        TINY_LLAMA.build(replace(text, chat_template=template)),
        tmp_path / "hf",
        format="huggingface",
    )
    log_probabilities = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert log_probabilities["chat_template"] == template
    assert us.load(tmp_path / "hf").tokenizer.chat([{"role": "user", "content": "hi"}]) == "hi\n"


def test_unsupported_exports_are_rejected_before_writing(text, tmp_path):
    mixture = TransformerConfig(**{**vars(TINY_LLAMA), "head": MixtureHeadConfig()}).build(text)
    with pytest.raises(ValueError, match="cannot be exported to Hugging Face: use a softmax"):
        us.save(mixture, tmp_path / "hf", format="huggingface")
    with pytest.raises(TypeError, match="cannot export a RNNLM"):
        us.save(RNNConfig(vocab_size=9, width=8).build(), tmp_path / "hf", format="huggingface")
    with pytest.raises(ValueError, match="format is 'onnx', but must be one of 'huggingface', 'unspool'"):
        us.save(TINY_LLAMA.build(text), tmp_path / "hf", format="onnx")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        us.save(TINY_LLAMA.build(text), tmp_path, format="huggingface")


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
def log_probabilities(model):
    source, tokens = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    if isinstance(model, us.models.TransformerSeq2Seq):
        return model(source, torch.tensor([4]), tokens)
    return model(input_ids=source, decoder_input_ids=tokens).logits.log_softmax(-1)


@pytest.mark.parametrize("name", CASES)
def test_seq2seq_exports_round_trip(make_hf_seq2seq, transformers, tmp_path, name):
    family, changes = CASES[name]
    hf = make_hf_seq2seq(family, **changes)
    ours = hf.load("torch")
    us.save(ours, tmp_path / "again", format="huggingface")
    again = us.load(tmp_path / "again", engine="torch")
    assert again.config == ours.config
    torch.testing.assert_close(log_probabilities(again), log_probabilities(ours), atol=1e-5, rtol=0)
    hf_model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    assert type(hf_model) is type(hf.model)
    torch.testing.assert_close(log_probabilities(hf_model), log_probabilities(ours), atol=1e-4, rtol=0)
    assert us.generate(again, "w7 w8", us.Greedy(), max_new_tokens=5).text
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "again")("w7 w8").input_ids == (
        hf.tokenizer("w7 w8").input_ids
    )


@pytest.mark.parametrize("name", OURS)
def test_models_built_here_are_exported_as_seq2seq(transformers, tmp_path, name):
    ours = made(**OURS[name])
    torch.testing.assert_close(
        log_probabilities(us.to_huggingface(ours)), log_probabilities(ours), atol=1e-4, rtol=0
    )
    us.save(ours, tmp_path / "saved", format="huggingface")
    hf_model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved").eval()
    assert type(hf_model).__name__ == SEQ2SEQ_ARCHITECTURES[ours.config.positions][1]
    torch.testing.assert_close(log_probabilities(hf_model), log_probabilities(ours), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        log_probabilities(us.load(tmp_path / "saved")), log_probabilities(ours), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "bart",
            {"positions": "rotary"},
            "positions='rotary' cannot be exported to Hugging Face: only learned",
        ),
        (
            "bart",
            {"norm_place": "pre"},
            r"norm_place='pre' \(BartForConditionalGeneration has",
        ),
        (
            "bart",
            {"embed_norm": False},
            r"embed_norm=False \(BartForConditionalGeneration has",
        ),
        ("marian", {"embed_scale": 3.0}, r"embed_scale=3.0 \(MarianMTModel has"),
        ("marian", {"source_vocab_size": 9}, r"source_vocab_size=9 \(MarianMTModel has"),
        ("marian", {"activation": "swiglu"}, "activation_function 'swiglu' is unknown"),
        (
            "marian",
            {"head": HEADS["mixture"](experts=2)},
            "cannot be exported to Hugging Face: only a softmax",
        ),
        ("t5", {"bias": True}, r"bias=True \(T5ForConditionalGeneration has"),
        ("t5", {"head": HEADS["softmax"](bias=True)}, "a bias of T5's head cannot be exported"),
        ("t5", {"activation": "gelu_tanh"}, "feed_forward_proj 'gelu_tanh' is unknown"),
    ],
)
def test_unsupported_seq2seq_exports_are_rejected(tmp_path, name, changes, message):
    with pytest.raises(ValueError, match=message):
        us.save(made(**OURS[name] | changes), tmp_path / "saved", format="huggingface")
    assert not (tmp_path / "saved").exists()


def test_exports_restore_unused_rows_and_factors():
    bart = export_to_huggingface(made(**OURS["bart"]))
    places = bart.weights["model.decoder.embed_positions.weight"]
    assert places.shape == (32, 16)
    assert not places[:2].any()
    model = made(**OURS["t5"])
    t5 = export_to_huggingface(model)
    query = model.blocks[0].cross_attention.query.weight
    torch.testing.assert_close(
        t5.weights["decoder.block.0.layer.1.EncDecAttention.q.weight"] * 6**0.5, query.detach()
    )
