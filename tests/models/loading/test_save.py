import copy
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import models

import unspool as us
from unspool.heads import (
    HEADS as KINDS_OF_HEADS,
    BilinearHeadConfig,
    CappedHeadConfig,
    KerbsHeadConfig,
    MixtureHeadConfig,
    SigsoftmaxHeadConfig,
    SoftmaxHeadConfig,
    TemperedHeadConfig,
)
from unspool.models import (
    MODELS,
    ClassifierConfig,
    MaskedLMConfig,
    MaskedSeq2SeqConfig,
    RNNConfig,
    RNNSeq2SeqConfig,
    TaggerConfig,
    TransformerConfig,
    TransformerSeq2SeqConfig,
    TrigramConfig,
)
from unspool.models.encoders import RNNEncoderConfig, TransformerEncoderConfig
from unspool.models.loading import load, run_folder, save
from unspool.testing import bigram
from unspool.tokenization.tokenizer import Tokenizer

V = 9
LM = TransformerConfig(
    vocab_size=V, width=8, layers=1, heads=2, kv_heads=2, head_width=4, inner_width=12, context=16
)
SHAPES = [
    LM,
    RNNConfig(vocab_size=V, width=8),
    MaskedLMConfig(vocab_size=V, width=8, layers=1, heads=2, inner_width=12, eos=2),
    MaskedSeq2SeqConfig(
        vocab_size=V, width=8, encoder_layers=1, decoder_layers=1, heads=2, inner_width=12, bos=1, eos=2
    ),
    TrigramConfig(vocab_size=V, width=8, inner_width=6),
    RNNSeq2SeqConfig(vocab_size=V, width=8, bos=1, eos=2),
    TransformerSeq2SeqConfig(
        vocab_size=V, width=8, heads=2, inner_width=12, encoder_layers=1, decoder_layers=1, bos=1, eos=2
    ),
    ClassifierConfig(vocab_size=V, labels=("a", "b"), encoder=RNNEncoderConfig(width=6)),
    TaggerConfig(
        vocab_size=V,
        labels=("a", "b", "c"),
        encoder=TransformerEncoderConfig(width=8, heads=2, inner_width=8, layers=1),
    ),
]
HEADS = [
    SoftmaxHeadConfig(tied=False, bias=True),
    TemperedHeadConfig(learnt=True),
    CappedHeadConfig(cap=2.5),
    BilinearHeadConfig(inner_width=5),
    MixtureHeadConfig(2),
    SigsoftmaxHeadConfig(),
    KerbsHeadConfig(senses=1.7),
]
TOKENS = torch.tensor([[3, 4, 5], [6, 7, 8]])


def words():
    return Tokenizer(
        tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")),
        eos_ids=frozenset({2}),
    )


def make(shape, text=None):
    torch.manual_seed(0)
    return shape.build(text).train()


@torch.no_grad()
def log_probabilities(model):
    model = copy.deepcopy(model).eval()
    lengths = torch.tensor([3, 3])
    match type(model).__name__:
        case "Classifier" | "Tagger":
            return model(TOKENS, lengths)
        case "RNNSeq2Seq" | "TransformerSeq2Seq":
            return model(TOKENS, lengths, TOKENS)
        case "MaskedLM" | "MaskedSeq2Seq":
            return torch.stack(model.fill(TOKENS.tolist(), [[V, 3], [4, V]]))
        case _:
            return model(TOKENS)


def test_every_kind_and_head_is_here():
    assert {type(shape) for shape in SHAPES} == set(MODELS.values())
    assert {type(head) for head in HEADS} == set(KINDS_OF_HEADS.values())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_every_model_round_trips(shape, tmp_path):
    model = make(shape, words())
    save(model, tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert loaded.config == shape
    torch.testing.assert_close(log_probabilities(loaded), log_probabilities(model), atol=1e-6, rtol=0)
    assert loaded.tokenizer.encode("b") == [1]
    assert loaded.tokenizer.eos_ids == {2}
    assert model.training


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_every_head_round_trips(head, tmp_path):
    model = make(TransformerConfig(**{**vars(LM), "head": head}))
    save(model, str(tmp_path / "saved"))
    torch.testing.assert_close(
        log_probabilities(load(tmp_path / "saved")), log_probabilities(model), atol=1e-6, rtol=0
    )


def test_kerbs_senses_round_trip(tmp_path):
    model = make(TransformerConfig(**{**vars(LM), "head": KerbsHeadConfig(senses=2.0)}))
    model.head.reassign(10, 3, torch.ones(8))
    save(model, tmp_path / "saved")
    assert torch.equal(load(tmp_path / "saved").head.words_S, model.head.words_S)


@pytest.mark.parametrize("format_", ["unspool", "huggingface"])
def test_a_flipped_byte_of_the_weights_is_detected(format_, tmp_path):
    config = TransformerConfig(vocab_size=11, width=8, layers=1, heads=2, inner_width=8)
    save(config.build(), tmp_path / "m", format=format_)
    path = tmp_path / "m" / "model.safetensors"
    saved_dtype = path.read_bytes()
    load(tmp_path / "m")
    header = 8 + int.from_bytes(saved_dtype[:8], "little")
    for at in (
        header,
        (header + len(saved_dtype)) // 2,
        len(saved_dtype) - 1,
    ):  # a low bit: the number stays finite
        path.write_bytes(saved_dtype[:at] + bytes([saved_dtype[at] ^ 1]) + saved_dtype[at + 1 :])
        with pytest.raises(
            ValueError, match=r"model\.safetensors: the checksum does not match: .* again"
        ) as loaded:
            load(tmp_path / "m")
        assert "\n" not in str(loaded.value)
    path.write_bytes(saved_dtype)
    load(tmp_path / "m")


def test_foreign_weights_need_no_checksum(tmp_path):
    config = TransformerConfig(vocab_size=11, width=8, layers=1, heads=2, inner_width=8)
    save(config.build(), tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    save_file(load_file(path), path)
    load(tmp_path / "m")


def test_a_gguf_model_is_saved_as_a_run_folder(make_hf_model, write_gguf, tmp_path):
    hf = make_hf_model("Llama")
    model = load(write_gguf(hf, "llama", kind="Q8_0", tokenizer=True))
    save(model, tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    hf.assert_equals(loaded)
    assert loaded.tokenizer.encode("abc ab") == model.tokenizer.encode("abc ab")


def test_save_keeps_half_precision(tmp_path):
    model = make(LM).to(torch.bfloat16)
    save(model, tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").stat().st_size < 4 * sum(
        p.numel() for p in model.parameters()
    )
    assert torch.equal(
        log_probabilities(load(tmp_path / "saved", dtype="bfloat16")), log_probabilities(model)
    )


def test_shared_weights_are_saved_twice(tmp_path):
    model = make(TransformerConfig(**{**vars(LM), "tied": False}))
    model.head.weight = model.embed.weight
    save(model, tmp_path / "saved")
    torch.testing.assert_close(
        log_probabilities(load(tmp_path / "saved")), log_probabilities(model), atol=1e-6, rtol=0
    )


def test_save_replaces_saved_models_and_fills_empty_folders(tmp_path):
    (tmp_path / "saved").mkdir()
    save(make(LM), tmp_path / "saved")
    model = load(tmp_path / "saved")
    with torch.no_grad():
        model.embed.weight.mul_(2)
    save(model, tmp_path / "saved")
    torch.testing.assert_close(
        log_probabilities(load(tmp_path / "saved")), log_probabilities(model), atol=1e-6, rtol=0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.txt": "years"}, "holds thesis.txt and is not a saved model"),
        ({"config.json": '{"model_type": "llama"}'}, "holds config.json and is not a saved model"),
        (
            {"config.json": '{"format": "unspool"}', "recipe.toml": ""},
            "holds recipe.toml, which would be lost",
        ),
    ],
)
def test_save_does_not_replace_other_folders(files, message, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(FileExistsError, match=message):
        save(make(LM), folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_save_does_not_replace_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="file is a file, not a folder"):
        save(make(LM), tmp_path / "file")


@pytest.mark.parametrize(
    "model",
    [
        "smollm2",
        None,
        bigram([[1.0]]),
        us.Ensemble([make(LM), make(LM)]),
        make(LM).exits([0]),
        torch.nn.Linear(2, 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_save_rejects_other_objects(model, tmp_path):
    with pytest.raises(TypeError, match=rf"^cannot save a {type(model).__name__}:"):
        save(model, tmp_path / "saved")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("folder", [None, 3, ["a"], b"saved", ""])
def test_save_rejects_wrong_folder_types(folder):
    with pytest.raises(TypeError, match="is saved to a folder, given by name or path"):
        save(make(LM), folder)


def test_save_rejects_nan_and_meta_tensors(tmp_path):
    model = make(LM)
    with torch.no_grad():
        model.norm.weight[3] = float("nan")
    with pytest.raises(ValueError, match=r"tensor 'norm\.weight' holds NaN"):
        save(model, tmp_path / "saved")
    with pytest.raises(ValueError, match="on the device 'meta'"):
        save(make(LM).to("meta"), tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_save_rejects_other_tokenizers_and_leaves_no_files(tmp_path):
    model = make(LM)
    model.tokenizer = object()
    with pytest.raises(TypeError, match="only a Tokenizer can be saved with a model"):
        save(model, tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_save_errors_name_the_folder(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise run_folder.SafetensorError("I/O error: No space left on device")

    monkeypatch.setitem(run_folder.FORMATS, "unspool", fail)
    with pytest.raises(OSError, match=r"saved: the weights cannot be written: .*No space left"):
        save(make(LM), tmp_path / "saved")


def test_save_expands_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(make(LM), "~/models/saved")
    assert Path(tmp_path, "models", "saved", "config.json").is_file()
    assert load("~/models/saved").config == LM
