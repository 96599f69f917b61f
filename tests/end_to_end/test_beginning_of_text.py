"""The BOS convention: data, validation, prompts, scores, perplexity and exports all begin a text alike."""

import json
import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import unspool as us
from unspool.data import prepare
from unspool.data.batches import Bucketed, Packed
from unspool.data.conllu import read_treebank
from unspool.data.line_formats import Lines
from unspool.diagnose.dependency_agreement import agreements
from unspool.evaluate.teacher_forcing import perplexity
from unspool.interfaces import Clock
from unspool.objectives.attention_losses import DependencyHeads, pad_rows
from unspool.tokenization import Words, train_bpe

LINES = ["the cat sat on the mat .", "a dog ran to my house .", "my cat ran to the dog ."] * 15
HELD = "the dog sat on my mat ."
SOURCE = "my dog sat on the house ."

LLAMA = {"kind": "transformer_lm", "layers": 1, "heads": 2, "inner_width": 32, "context": 64}
GPT2 = LLAMA | {"norm": "layer", "positions": "learned", "activation": "gelu_tanh", "bias": True}
RNN, TRIGRAM = {"kind": "rnn_lm"}, {"kind": "trigram", "inner_width": 32}
SEQ2SEQ = {
    **{"kind": "transformer_seq2seq", "encoder_layers": 1, "decoder_layers": 1, "heads": 2},
    "inner_width": 32,
}
MARIAN = {
    **SEQ2SEQ,
    **{"positions": "sinusoidal_halves", "context": 64, "norm": "layer", "norm_place": "post"},
    **{"bias": True, "activation": "relu"},
}
T5 = SEQ2SEQ | {"positions": "relative", "activation": "geglu", "embed_scale": 1.0}
BUCKETED, PACKED = {"kind": "bucketed", "tokens": 512}, {"kind": "packed", "rows": 2, "length": 40}


def trained(folder, model, batches, tokenizer=None, lines=LINES, held=HELD, **data):
    """A model after 12 updates, and the NLL of `held` that training's last validation measured."""
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text(held + "\n")
    files = {"train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")}
    recipe = {
        "data": {"kind": "lines", **files, **data},
        "tokenizer": tokenizer or {"kind": "words"},
        "batches": batches,
        "model": {"width": 32, **model},
        "schedule": {"kind": "constant", "warmup": 5},
        "train": {"updates": 12, "lr": 0.01, "validate_every": 12, "checkpoint_every": 12},
    }
    us.train(recipe, folder / "run")
    curves = (folder / "run" / "curves.jsonl").read_text().splitlines()
    (valid,) = [it["valid"] for it in map(json.loads, curves) if "valid" in it]
    return us.load(folder / "run"), valid


def pairs(folder, model, tokenizer=None):
    rows = [f"{a}\t{b}" for a, b in zip(LINES, LINES[1:] + LINES[:1], strict=True)]
    return trained(folder, model, BUCKETED, tokenizer, rows, f"{SOURCE}\t{HELD}", kind="tsv")


RUNS = {
    "transformer, bucketed": (LLAMA, BUCKETED, None),
    "transformer, packed": (LLAMA, PACKED, None),
    "transformer, right to left": (LLAMA, BUCKETED, {"kind": "words", "right_to_left": True}),
    "transformer, bpe": (LLAMA, BUCKETED, {"kind": "bpe", "vocab_size": 288}),
    "gpt-2": (GPT2, BUCKETED, {"kind": "characters"}),
    "rnn, bucketed": (RNN, BUCKETED, None),
    "rnn, packed": (RNN, PACKED, None),
    "trigram, bucketed": (TRIGRAM, BUCKETED, None),
    "trigram, packed": (TRIGRAM, PACKED, None),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_held_out_text_costs_the_same_in_validation_and_wherever_the_model_is_asked(name, tmp_path):
    model, valid = trained(tmp_path, *RUNS[name])
    bos, (eos,) = model.tokenizer.bos_id, model.tokenizer.eos_ids
    ids = model.tokenizer.encode(HELD)
    assert ids[0] == bos
    whole = us.score(model, "", HELD, end=True)
    assert -whole.total / len(whole.tokens) == pytest.approx(valid, abs=1e-5)
    assert perplexity(model, [[*ids, eos]]).value == pytest.approx(math.exp(valid), rel=1e-5)
    assert perplexity(model, [HELD]).nats == pytest.approx(-sum(whole.logps[:-1]), abs=1e-4)
    # A prompt is read as the beginning of a text: what follows it costs what it cost in the whole.
    prompt, rest = ("the dog", " sat on my mat .")
    if model.tokenizer.right_to_left:
        prompt, rest = ("mat .", "the dog sat on my")
    after = us.score(model, prompt, rest, end=True)
    assert after.logps == pytest.approx(whole.logps[-len(after.tokens) :], abs=1e-5)
    out = us.generate(model, prompt, us.Greedy(), max_new_tokens=4)
    by_ids = us.generate(model, model.tokenizer.encode(prompt), us.Greedy(), max_new_tokens=4)
    assert out.tokens == by_ids.tokens


@pytest.mark.parametrize("shape", [LLAMA, GPT2], ids=["llama", "gpt-2"])
def test_a_hugging_face_export_reads_a_held_out_text_as_training_did(shape, tmp_path):
    model, valid = trained(tmp_path, shape, BUCKETED, {"kind": "bpe", "vocab_size": 288})
    us.save(model, tmp_path / "export", format="huggingface")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "export")
    ids = tokenizer(HELD).input_ids
    assert ids == model.tokenizer.encode(HELD)
    row = torch.tensor([[*ids, tokenizer.eos_token_id]])
    with torch.no_grad():
        assert float(theirs(row, labels=row).loss) == pytest.approx(valid, abs=1e-4)
    again = us.load(tmp_path / "export")
    assert again.tokenizer.encode(HELD) == ids
    assert us.score(again, "", HELD, end=True).total == pytest.approx(-valid * len(ids), abs=1e-3)
    ours = us.generate(model, "the dog", us.Greedy(), max_new_tokens=6)
    said = theirs.generate(**tokenizer("the dog", return_tensors="pt"), max_new_tokens=6, do_sample=False)
    assert list(ours.tokens) == said[0, len(tokenizer("the dog").input_ids) :].tolist()


@pytest.mark.parametrize("shape", [SEQ2SEQ, {"kind": "rnn_seq2seq"}], ids=["transformer", "rnn"])
@pytest.mark.parametrize("backwards", [False, True], ids=["left to right", "right to left"])
def test_an_encoder_decoder_is_asked_as_it_was_trained(shape, backwards, tmp_path):
    model, valid = pairs(tmp_path, shape, {"kind": "words", "right_to_left": backwards})
    found = us.score(model, SOURCE, HELD, end=True)
    assert -found.total / len(found.tokens) == pytest.approx(valid, abs=1e-5)
    assert perplexity(model, [HELD], [SOURCE]).value == pytest.approx(math.exp(valid), rel=1e-5)
    # BOS in front of a source, written by hand, is taken off: sources are trained without.
    ids = [model.tokenizer.bos_id, *model.tokenizer.source_tokenizer.encode(SOURCE)]
    assert us.score(model, ids, HELD, end=True).total == pytest.approx(found.total, abs=1e-5)


@pytest.mark.parametrize("shape", [MARIAN, T5], ids=["marian", "t5"])
def test_an_exported_encoder_decoder_ends_its_sources_as_training_did(shape, tmp_path):
    model, valid = pairs(tmp_path, shape)
    us.save(model, tmp_path / "export", format="huggingface")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "export")
    source, target = (tokenizer(it, return_tensors="pt").input_ids for it in (SOURCE, HELD))
    assert int(source[0, -1]) in model.tokenizer.eos_ids
    with torch.no_grad():
        assert float(theirs(source, labels=target).loss) == pytest.approx(valid, abs=1e-4)


def test_a_masked_model_reads_texts_without_bos_when_it_learns_and_when_it_is_asked(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    prepared = prepare(Lines(train=str(tmp_path / "text.txt")), Words(), Bucketed())
    text = prepared.tokenizer
    shape = us.models.MaskedLMConfig(vocab_size=text.vocab_size, width=16, layers=1, heads=2, inner_width=16)
    torch.manual_seed(0)
    model = shape.build(text).eval()
    batch = prepared.train.batch(0)
    texts_NT, _ = model.whole_texts(batch, torch.zeros(len(batch.lengths_N)))
    assert text.bos_id not in texts_NT
    assert text.decode(texts_NT[0].tolist()) in LINES  # the first word, too
    hidden = [model.vocab_size, min(text.eos_ids)]
    bare = text.encode("the cat")[1:]
    (with_bos,), (without,) = (model.fill([it], [hidden]) for it in (text.encode("the cat"), bare))
    assert torch.equal(with_bos, without)


def test_a_vocabulary_of_whole_files_has_no_bos(tmp_path):
    # Blocks of a file begin in its middle, and so do prompts: BOS would stand before one block of many.
    model, valid = trained(tmp_path, LLAMA, PACKED, document="file")
    assert model.tokenizer.bos_id is None
    ids, (eos,) = model.tokenizer.encode(HELD), model.tokenizer.eos_ids
    assert perplexity(model, [[*ids, eos]]).value == pytest.approx(math.exp(valid), rel=1e-5)


def test_a_pretrained_model_is_trained_on_what_its_own_prompts_begin_with(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n")
    for add_bos in (False, True):
        text = replace(train_bpe(LINES, 290), add_bos=add_bos)
        for batches in (Bucketed(), Packed(rows=1, length=30)):
            prepared = prepare(Lines(train=str(path), valid=str(path)), text, batches)
            first = prepared.valid[0].inputs_NT[0].tolist()
            assert (first[0] == text.bos_id) == add_bos
            if isinstance(batches, Packed):
                assert first[:5] == text.encode(LINES[0])[:5]


TREEBANK = """# text = the cat sat on my mat
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tsat\t_\tVERB\t_\t_\t0\troot\t_\t_
4\ton\t_\tADP\t_\t_\t6\tcase\t_\t_
5\tmy\t_\tPRON\t_\t_\t6\tnmod\t_\t_
6\tmat\t_\tNOUN\t_\t_\t3\tobl\t_\t_

"""


@pytest.mark.parametrize("backwards", [False, True], ids=["left to right", "right to left"])
def test_heads_are_trained_and_measured_on_what_the_model_reads(backwards, tmp_path, monkeypatch):
    text = replace(Words(right_to_left=backwards).train(LINES), add_bos=True)
    shape = us.models.TransformerConfig(
        vocab_size=text.vocab_size, width=16, layers=1, heads=2, inner_width=16
    )
    model = shape.build(text).eval()
    (tmp_path / "trees.conllu").write_text(TREEBANK)
    rows, read = [], type(model).read_attention
    monkeypatch.setattr(type(model), "read_attention", lambda self, it: rows.append(it) or read(self, it))
    (found,) = agreements(model, read_treebank(tmp_path / "trees.conllu"), ["det"])
    ids = text.encode("the cat sat on my mat")
    batch = replace(pad_rows([tuple(ids)]), weights_NU=torch.ones(1, len(ids)))
    loss = DependencyHeads(str(tmp_path / "trees.conllu"), ("det",))(model, batch, Clock(0, 1))
    assert ids[0] == text.bos_id
    assert [it.inputs_NT[0].tolist() for it in rows] == [ids, ids]
    # The arc goes from the word that is read later to one that is seen: no head is blind to it.
    assert found.arcs == 1
    assert loss.total.item() / loss.weight < 10
