import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import unspool as us
from unspool.heads import MixtureHeadConfig
from unspool.models.lora import LoRA, adapters_of, add_adapters
from unspool.models.rnn_lm import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.tokenization import train_bpe

LLAMA = TransformerConfig(
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


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_transformers_loads_it_with_the_same_logits_and_tokens(config, text, tmp_path):
    torch.manual_seed(0)
    model = config.build(text).eval()
    us.save(model, tmp_path / "hf", format="huggingface")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    tokens = torch.tensor([text.encode("the cat ran")])
    with torch.no_grad():
        logits = theirs(tokens).logits
        torch.testing.assert_close(logits, model.head.logits(model.hidden(tokens)), atol=1e-5, rtol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("the cat ran", add_special_tokens=False)["input_ids"] == text.encode("the cat ran")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<bos>", "<eos>")
    assert theirs.config.eos_token_id == 2
    again = us.load(tmp_path / "hf")
    torch.testing.assert_close(again(tokens), model(tokens))
    assert again.tokenizer.eos_ids == text.eos_ids


def test_adapters_are_merged_into_it(text, tmp_path):
    torch.manual_seed(0)
    model = LLAMA.build(text).eval()
    add_adapters(model, LoRA(rank=2))
    for part in adapters_of(model).values():
        torch.nn.init.normal_(part.lora_b)
    us.save(model, tmp_path / "hf", format="huggingface")
    tokens = torch.tensor([[5, 7, 9]])
    torch.testing.assert_close(us.load(tmp_path / "hf")(tokens), model(tokens), atol=1e-5, rtol=0)


def test_a_chat_template_comes_along(text, tmp_path):
    from dataclasses import replace

    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    us.save(LLAMA.build(replace(text, chat_template=template)), tmp_path / "hf", format="huggingface")
    said = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert said["chat_template"] == template
    assert us.load(tmp_path / "hf").tokenizer.chat([{"role": "user", "content": "hi"}]) == "hi\n"


def test_what_has_no_place_there_is_refused_before_anything_is_written(text, tmp_path):
    mixture = TransformerConfig(**{**vars(LLAMA), "head": MixtureHeadConfig()}).build(text)
    with pytest.raises(ValueError, match="is no softmax of one matrix"):
        us.save(mixture, tmp_path / "hf", format="huggingface")
    with pytest.raises(TypeError, match="no Hugging Face class to fill from a RNNLM"):
        us.save(RNNConfig(vocab_size=9, width=8).build(), tmp_path / "hf", format="huggingface")
    with pytest.raises(ValueError, match="format='onnx' is unknown: choose from 'huggingface', 'unspool'"):
        us.save(LLAMA.build(text), tmp_path / "hf", format="onnx")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        us.save(LLAMA.build(text), tmp_path, format="huggingface")
