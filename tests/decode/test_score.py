import math
from dataclasses import replace

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers

from unspool.decode.generate import generate
from unspool.decode.score import Score, read_on, score
from unspool.decode.search import Sample
from unspool.decode.transforms import BadWords
from unspool.interfaces import Abilities
from unspool.testing import TableModel, bigram, random_table
from unspool.tokenization import Tokenizer, train_bpe, train_characters

CHAIN = bigram([[0.1, 0.9], [0.4, 0.6]])


def test_by_hand():
    found = score(CHAIN, [0], [1, 1, 0])
    assert found.tokens == (1, 1, 0)
    assert found.logps == pytest.approx([math.log(0.9), math.log(0.6), math.log(0.4)])
    assert found.total == pytest.approx(math.log(0.9 * 0.6 * 0.4))


def test_the_most_probable_tokens_of_each_position_by_hand():
    (longer, shorter) = score(CHAIN, [[0], [1]], [[1, 1, 0], [0]], alternatives=2)
    best = {0: ((1, math.log(0.9)), (0, math.log(0.1))), 1: ((1, math.log(0.6)), (0, math.log(0.4)))}
    for found, before in ((longer, (0, 1, 1)), (shorter, (1,))):
        for ranked, token in zip(found.ranked, before, strict=True):
            assert [it[0] for it in ranked] == [it[0] for it in best[token]]
            assert [it[1] for it in ranked] == pytest.approx([it[1] for it in best[token]])
    assert score(CHAIN, [0], [1]).ranked == ()
    assert len(score(CHAIN, [0], [1], alternatives=9).ranked[0]) == 2
    with pytest.raises(ValueError, match="alternatives is -1"):
        score(CHAIN, [0], [1], alternatives=-1)


class Plain(Abilities):
    """A model that reads one token at a time."""

    context = tokenizer = None

    def __init__(self, table):
        self.vocab_size, self.start, self.step = table.vocab_size, table.start, table.step


@pytest.mark.parametrize(
    "model", [random_table(9, seed=4), Plain(random_table(9, seed=4))], ids=["ahead", "plain"]
)
@pytest.mark.parametrize("rows", [1, 2, 256])
def test_scores_equal_the_log_probabilities_of_generate(model, rows):
    prompts = [[1], [2, 3], [4, 5, 6], [1]]
    outs = [
        generate(model, prompt, Sample(), seed=place, max_new_tokens=1 + 3 * place)
        for place, prompt in enumerate(prompts)
    ]
    found = score(model, prompts, [list(out.tokens) for out in outs], batch_size=rows)
    for out, one in zip(outs, found, strict=True):
        assert one.tokens == out.tokens
        assert one.logps == pytest.approx(out.logps, abs=1e-6)


def test_nan_is_refused():
    broken = TableModel(lambda row: [0.5, 0.5] if len(row) < 3 else [math.nan, math.nan])
    assert score(broken, [0], [1, 1]).total == pytest.approx(2 * math.log(0.5))
    with pytest.raises(ValueError, match=r"text 1 has the log-probability NaN"):
        score(broken, [0], [[1, 1], [1, 1, 0]], batch_size=1)


def test_one_prompt_for_many_texts():
    assert score(CHAIN, [0], [[1], [0, 0]]) == [score(CHAIN, [0], [1]), score(CHAIN, [0], [0, 0])]
    assert score(CHAIN, [[0]], [[1]]) == [score(CHAIN, [0], [1])]


@pytest.mark.parametrize(
    ("prompts", "texts", "options", "words"),
    [
        ([[0], [1]], [[1]], {}, "2 prompts for 1 texts"),
        ([0], [[]], {}, "text 0 is empty"),
        ([0], [5], {}, "outside the model's vocabulary"),
        ([0], "a", {}, "does not have a tokenizer"),
        ([0], [1], {"end": True}, "needs an end-of-text token"),
        ([0], [1], {"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_invalid_texts_are_refused(prompts, texts, options, words):
    with pytest.raises(ValueError, match=words):
        score(CHAIN, prompts, texts, **options)


def test_a_text_beyond_the_context_is_refused():
    short = TableModel(lambda row: [0.5, 0.5], context=4)
    assert score(short, [0, 0], [1, 1]) == Score((1, 1), (pytest.approx(math.log(0.5)),) * 2)
    with pytest.raises(ValueError, match="the context leaves 2"):
        score(short, [0, 0], [1, 1, 1])


def test_reading_on_is_stepping():
    table = random_table(5, seed=1)
    tokens_NT = torch.tensor([[1, 2, 3], [4, 0, 1]])
    ahead, _ = read_on(table, table.start([[1], [2]])[1], tokens_NT)
    slow, _ = read_on(Plain(table), table.start([[1], [2]])[1], tokens_NT)
    torch.testing.assert_close(ahead.logp_NV, slow.logp_NV)


WORDS = ["hello", "world", "hell", "o", "w", "or", "ld", "he", "ll"]


def spaced_text(kind, add_bos=True):
    """A tokenizer that puts a space before a text: Llama 2's BPE, newer BPE, or a unigram model."""
    letters = [*sorted({*"".join(WORDS)}), ".", "\n", "a", "▁"]
    pieces = [*letters, *("▁" + it for it in letters[:-1]), *(it for it in WORDS if len(it) > 1)]
    pieces += ["▁" + it for it in WORDS if len(it) > 1]
    if kind == "unigram":
        scores = [(it, -3.0 - 1.0 / len(it)) for it in pieces]
        tokenizer = tokenizers.Tokenizer(
            models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *scores], unk_id=0)
        )
    else:
        known = ["<unk>", "<s>", "</s>", *pieces]
        merges = [
            (it[:cut], it[cut:])
            for it in sorted(pieces, key=len)
            for cut in range(1, len(it))
            if {it[:cut], it[cut:]} <= set(pieces)
        ]
        vocabulary = {it: at for at, it in enumerate(known)}
        tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True))
    if kind == "legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return Tokenizer(tokenizer, bos_id=1, eos_ids=frozenset({2}), add_bos=add_bos)


SPACED = {kind: spaced_text(kind) for kind in ("legacy", "first", "unigram")}


@pytest.mark.parametrize("kind", SPACED)
@pytest.mark.parametrize("prompt", ["hello", "hello ", "hell", "hello\n", "hello."])
@pytest.mark.parametrize("after", ["world", " world", "o", "o world", "  world", "\nworld", ".", "a"])
def test_what_is_scored_reads_as_the_prompt_and_the_text_together(kind, prompt, after):
    text = SPACED[kind]
    model = random_table(text.vocab_size, seed=3)
    model = TableModel(model.table, tokenizer=text)
    ids = text.encode(prompt)
    for given in (prompt, ids):
        found = score(model, given, after)
        assert text.decode([*ids, *found.tokens]) == prompt + after
        assert found == score(model, ids, list(found.tokens))
    whole = text.encode(prompt + after)
    if whole[: len(ids)] == ids:  # no token reaches over the boundary
        assert [*ids, *score(model, prompt, after).tokens] == whole


@pytest.mark.parametrize("kind", SPACED)
def test_text_that_was_generated_is_scored_as_it_was_generated(kind):
    text = SPACED[kind]
    canonical = 0
    for seed in range(40):
        model = TableModel(random_table(text.vocab_size, seed).table, tokenizer=text)
        prompt = [1, 3 + seed % 35, 4 + seed % 7]
        out = generate(model, prompt, Sample(BadWords(((0,), (1,), (2,)))), seed=seed, max_new_tokens=1)
        again = score(model, prompt, out.text)
        assert text.decode([*prompt, *again.tokens]) == text.decode([*prompt, *out.tokens])
        if len(again.tokens) == 1:
            canonical += 1
            assert (again.tokens, again.logps) == (out.tokens, pytest.approx(out.logps, abs=1e-6))
    assert canonical > 30


@pytest.mark.parametrize("kind", SPACED)
def test_a_text_after_the_first_token_alone_is_a_beginning(kind):
    text = SPACED[kind]
    model = TableModel(random_table(text.vocab_size, seed=3).table, tokenizer=text)
    assert [1, *score(model, [1], "world").tokens] == text.encode("world")
    assert score(model, [1], "world") == score(model, "", "world")


def test_a_text_before_the_prompt_of_a_right_to_left_model():
    for text in (train_characters(["abc "]), train_bpe(["ab cab ab c"] * 3, 280)):
        text = replace(text, right_to_left=True)
        model = TableModel(random_table(text.vocab_size, seed=3).table, tokenizer=text)
        found = score(model, "c ab", "ab ")
        assert text.decode([*text.encode("c ab"), *found.tokens]) == "ab c ab"
        assert found == score(model, text.encode("c ab"), "ab ")
