import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

import unspool as us
from unspool.integrations.huggingface.loading import convert_tokenizer, load_folder
from unspool.tokenization.vocabulary import train_characters


@pytest.mark.parametrize("wrong", ["gpt2", None, 3, torch.nn.Linear(2, 2)])
def test_other_objects_are_rejected_as_models(wrong):
    with pytest.raises(TypeError, match="not a generating model of transformers"):
        us.from_huggingface(wrong)


def test_a_tokenizer_with_more_tokens_than_the_model_is_rejected(llama):
    large = train_characters([chr(code) for code in range(65, 165)])
    with pytest.raises(ValueError, match=r"has \d+ tokens, the model only 40: give the model's own"):
        us.from_huggingface(llama, large)


def test_native_tokenizers_are_accepted(llama):
    text = train_characters(["abcdef. "])
    model = us.from_huggingface(llama, text)
    out = us.generate(
        model, "fade", us.Greedy(us.LogitBias(dict.fromkeys(range(13, 40), -99.0))), max_new_tokens=4
    )
    assert model.tokenizer is text
    assert out.text


def test_to_and_from_huggingface_round_trips():
    torch.manual_seed(0)
    ours = us.models.TransformerConfig(
        vocab_size=30, width=16, layers=2, heads=4, kv_heads=2, inner_width=24, context=64
    ).build()
    back = us.from_huggingface(us.to_huggingface(ours))
    tokens = torch.randint(0, 30, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(back(tokens), ours.eval()(tokens), atol=1e-5, rtol=1e-5)
    for search in (us.Greedy(), us.Beam(3), us.Sample(us.TopP(0.9))):
        arguments = {"max_new_tokens": 9, "seed": 3}
        want, result = (us.generate(model, [[3, 4], [5]], search, **arguments) for model in (ours, back))
        assert [out.tokens for out in result] == [out.tokens for out in want]


@pytest.fixture
def tokenizer():
    words = ["<pad>", "<s>", "</s>", "a", "cab", "fade"]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )


def test_converted_tokenizer_equals_the_original(tokenizer, llama):
    text = convert_tokenizer(tokenizer, llama)
    assert text.encode("a cab") == [1, 3, 4] == tokenizer("a cab").input_ids[:-1]
    assert text.decode([3, 5, 2]) == tokenizer.decode([3, 5, 2], skip_special_tokens=True)
    assert (text.bos_id, text.eos_ids, text.bos_token, text.eos_token) == (1, {2}, "<s>", "</s>")


def test_converting_does_not_change_the_tokenizer(tokenizer, llama):
    before = tokenizer.backend_tokenizer.to_str()
    us.generate(us.from_huggingface(llama, tokenizer), ["a cab", "a"], us.Greedy(), max_new_tokens=3)
    assert tokenizer.backend_tokenizer.to_str() == before


def test_sources_have_the_tokenizers_special_tokens(tokenizer, bart):
    model = us.from_huggingface(bart, tokenizer)
    ids = model.tokenizer.encode("fade a")
    assert model.ends.source(ids) == tokenizer("fade a").input_ids


def test_slow_tokenizers_are_rejected(llama):
    with pytest.raises(TypeError, match="must be a fast tokenizer"):
        convert_tokenizer(object(), llama)


CPU = torch.device("cpu")


@pytest.mark.parametrize("family", ["mamba", "t5"])
def test_a_folder_gives_the_same_log_probabilities(families, family, tmp_path):
    families[family].save_pretrained(tmp_path)
    model = load_folder(tmp_path, CPU, torch.float32)
    outputs = model.start([[5, 6, 2]])[0].logp_NV
    want = type(model)(families[family], None).start([[5, 6, 2]])[0].logp_NV
    torch.testing.assert_close(outputs, want)
    assert model.tokenizer is None


def test_loading_a_folder_writes_nothing_and_leaves_the_settings_of_transformers(families, tmp_path, capfd):
    families["opt"].save_pretrained(tmp_path)
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    capfd.readouterr()
    load_folder(tmp_path, CPU, torch.float32)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert before[1]


def test_a_folder_is_loaded_in_the_given_dtype(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    model = load_folder(tmp_path, CPU, torch.bfloat16)
    assert {it.dtype for it in model.parameters()} == {torch.bfloat16}
    step, _ = model.start([[5, 6]])
    assert step.logp_NV.dtype == torch.float32


def test_pickles_and_auto_map_code_are_rejected(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="transformers cannot load this model"):
        load_folder(tmp_path, CPU, torch.float32)
    (tmp_path / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}')
    (tmp_path / "own.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="transformers cannot load this model"):
        load_folder(tmp_path, CPU, torch.float32)


def test_invalid_settings_are_reported_in_one_line(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"hidden_size": ', '"hidden_size": "many", "was": ', 1))
    with pytest.raises(ValueError, match=r"transformers cannot load this model: .*hidden_size"):
        load_folder(tmp_path, CPU, torch.float32)


def rewritten(folder, change):
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


def without(part):
    return lambda weights: {name: it for name, it in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without("layers.1.fc1"),
            r"missing in the weights: .*layers\.1\.fc1\.bias, .*layers\.1\.fc1\.weight; fetch",
        ),
        (without("fc1.bias"), r"missing in the weights: [^,]*, [^,]*; fetch"),
        (without("layers.1.fc1.bias"), r"missing in the weights: [^,]*; fetch"),
        (without(""), r"missing in the weights: .* and 32 more"),
        (lambda weights: {f"other.{name}": it for name, it in weights.items()}, r"tensors missing"),
    ],
)
def test_missing_tensors_are_rejected(families, tmp_path, change, message, capfd):
    families["opt"].save_pretrained(tmp_path)
    capfd.readouterr()
    rewritten(tmp_path, change)
    with pytest.raises(ValueError, match=message) as refused:
        load_folder(tmp_path, CPU, torch.float32)
    assert "\n" not in str(refused.value)
    assert "MISSING" not in capfd.readouterr().err  # their table


def test_unused_tensors_give_a_warning(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    rewritten(tmp_path, lambda weights: weights | {"model.decoder.extra": torch.ones(2)})
    with pytest.warns(UserWarning, match="tensors not used by this model: model.decoder.extra"):
        load_folder(tmp_path, CPU, torch.float32)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", {"model_type": "unheard-of"}),
        ("config.json", {"model_type": "vit"}),
        ("config.json", {"model_type": 3}),
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"ffn_dim": 48}),
        ("config.json", {"hidden_size": 10**12}),
        ("config.json", {"vocab_size": -5}),
        ("config.json", {"activation_function": "nope"}),
        ("config.json", {"dtype": "nope"}),
        ("config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
    ],
)
def test_damaged_files_are_reported_in_one_line(families, tmp_path, file, content):
    families["opt"].save_pretrained(tmp_path)
    path = tmp_path / file
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content).encode()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"transformers cannot load this model: \S+ \S+") as refused:
        load_folder(tmp_path, CPU, torch.float32)
    assert "\n" not in str(refused.value)
