import math

import pytest
import torch

from unspool.decode.generate import generate
from unspool.decode.score import Score, read_on, score
from unspool.decode.search import Sample
from unspool.protocols import Abilities
from unspool.testing import TableModel, bigram, random_table

CHAIN = bigram([[0.1, 0.9], [0.4, 0.6]])


def test_by_hand():
    found = score(CHAIN, [0], [1, 1, 0])
    assert found.tokens == (1, 1, 0)
    assert found.logps == pytest.approx([math.log(0.9), math.log(0.6), math.log(0.4)])
    assert found.total == pytest.approx(math.log(0.9 * 0.6 * 0.4))


class Plain(Abilities):
    """A model that reads one token at a time."""

    context = text = None

    def __init__(self, table):
        self.vocab_size, self.start, self.step = table.vocab_size, table.start, table.step


@pytest.mark.parametrize(
    "model", [random_table(9, seed=4), Plain(random_table(9, seed=4))], ids=["ahead", "plain"]
)
@pytest.mark.parametrize("rows", [1, 2, 256])
def test_it_is_what_generating_said(model, rows):
    prompts = [[1], [2, 3], [4, 5, 6], [1]]
    outs = [
        generate(model, prompt, Sample(), seed=place, max_new_tokens=1 + 3 * place)
        for place, prompt in enumerate(prompts)
    ]
    found = score(model, prompts, [list(out.tokens) for out in outs], batch_size=rows)
    for out, one in zip(outs, found, strict=True):
        assert one.tokens == out.tokens
        assert one.logps == pytest.approx(out.logps, abs=1e-6)


def test_what_is_no_number_is_refused():
    broken = TableModel(lambda row: [0.5, 0.5] if len(row) < 3 else [math.nan, math.nan])
    assert score(broken, [0], [1, 1]).total == pytest.approx(2 * math.log(0.5))
    with pytest.raises(ValueError, match=r"text 1 .* no number \(NaN\)"):
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
        ([0], "a", {}, "no tokenizer"),
        ([0], [1], {"end": True}, "names none"),
        ([0], [1], {"batch_size": 0}, "batch_size=0"),
    ],
)
def test_what_cannot_be_scored_is_refused(prompts, texts, options, words):
    with pytest.raises(ValueError, match=words):
        score(CHAIN, prompts, texts, **options)


def test_a_text_beyond_the_context_is_refused():
    short = TableModel(lambda row: [0.5, 0.5], context=4)
    assert score(short, [0, 0], [1, 1]) == Score((1, 1), (pytest.approx(math.log(0.5)),) * 2)
    with pytest.raises(ValueError, match="room for 2"):
        score(short, [0, 0], [1, 1, 1])


def test_reading_on_is_stepping():
    table = random_table(5, seed=1)
    tokens_NT = torch.tensor([[1, 2, 3], [4, 0, 1]])
    ahead, _ = read_on(table, table.start([[1], [2]])[1], tokens_NT)
    slow, _ = read_on(Plain(table), table.start([[1], [2]])[1], tokens_NT)
    torch.testing.assert_close(ahead.logp_NV, slow.logp_NV)
