from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.evaluate.teacher_forcing import (
    Window,
    encode,
    fitting,
    forced,
    paired,
    read,
    token_ids,
    token_pairs,
    windows,
)
from unspool.interfaces import Abilities
from unspool.models.transformer_lm import TransformerConfig
from unspool.testing import TableModel, bigram, random_table

ROWS = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]


class Slow(Abilities):
    """A StepModel that cannot extend."""

    def __init__(self, inner):
        self.inner, self.vocab_size, self.context, self.text = inner, inner.vocab_size, None, None

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        return self.inner.step(state, tokens_N)


class Answers(Abilities):
    """A StepModel whose prompts are sources: p(t | source, target so far) depends on all of them."""

    is_encoder_decoder, vocab_size, context, tokenizer = True, 3, 4, None

    def __init__(self):
        self.inner = TableModel(lambda row: ROWS[sum(row) % 3])

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        return self.inner.step(state, tokens_N)


class Spelt:
    """A tokenizer of the letters a, b, c; BOS is 3, and EOS 4."""

    bos_id, eos_ids = 3, frozenset({4})

    def encode(self, text):
        return [3, *("abc".index(letter) for letter in text)]


def scored(model, parts, batch):
    found = []
    for seen in read(model, parts, batch=batch):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0]
        found += zip(seen.text_M.tolist(), seen.token_M.tolist(), logp_M.tolist(), strict=True)
    return found


def test_windows_by_hand():
    assert windows([[1, 2, 3, 4, 5, 6, 7]], context=4, stride=2) == [
        Window(0, (1, 2, 3, 4), 1),
        Window(0, (3, 4, 5, 6), 2),
        Window(0, (4, 5, 6, 7), 3),
    ]
    assert windows([[1, 2, 3]], context=8) == [Window(0, (1, 2, 3), 1)]
    assert windows([[1, 2, 3], [4, 5]]) == [Window(0, (1, 2, 3), 1), Window(1, (4, 5), 1)]


@given(st.integers(2, 40), st.integers(2, 12), st.data())
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(length, context, data):
    stride = data.draw(st.integers(1, context - 1))
    parts = windows([range(length)], context, stride)
    assert sorted(t for part in parts for t in part.tokens[part.first :]) == list(range(1, length))
    assert all(len(part.tokens) <= context for part in parts)
    assert all(part.first >= min(context - stride, part.tokens[part.first]) for part in parts)


@pytest.mark.parametrize("wrap", [lambda m: m, Slow])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_reading_looks_every_token_up_in_the_table(wrap, batch):
    rows = [[0, 1, 2, 2], [2, 0], [1, 1, 0, 2, 1, 0]]
    found = sorted(scored(wrap(bigram(ROWS)), windows(rows), batch))
    want = sorted(
        (n, row[t], torch.tensor(ROWS[row[t - 1]][row[t]]).log().item())
        for n, row in enumerate(rows)
        for t in range(1, len(row))
    )
    assert [each[:2] for each in found] == [each[:2] for each in want]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in want])


def test_long_rows_are_read_in_parts_with_the_same_result(monkeypatch):
    monkeypatch.setattr("unspool.decode.score.MAX_LOGPS", 32 * 5)
    row = torch.randint(5, (150,), generator=torch.Generator().manual_seed(0)).tolist()
    model = random_table(5, seed=1, order=2)
    step_by_step = [model.start([row[:t]])[0].logp_NV[0, row[t]].item() for t in range(1, len(row))]
    assert [logp for _, _, logp in scored(model, windows([row]), 2)] == pytest.approx(step_by_step)


def test_a_window_sees_nothing_before_itself():
    model = TableModel(lambda row: [0.5, 0.5] if len(row) < 3 else [0.9, 0.1])
    found = scored(model, windows([[0, 0, 0, 0, 0]], context=3, stride=1), 8)
    # places 1 and 2 have one and two tokens before them; later ones always two, never more
    assert [logp for *_, logp in found] == pytest.approx([torch.tensor(0.5).log().item()] * 4)


def test_unscorable_texts_raise():
    model = bigram(ROWS)
    with pytest.raises(ValueError, match="text 1 has 1 tokens"):
        encode(model, [[0, 1], [2]])
    with pytest.raises(ValueError, match="no tokenizer"):
        encode(model, ["abc"])
    with pytest.raises(ValueError, match="texts is empty"):
        forced(model, [])
    with pytest.raises(TypeError, match="must be a list of texts"):
        forced(model, "abc")
    with pytest.raises(ValueError, match="stride is 4"):
        windows([[0, 1]], context=4, stride=4)


def test_the_window_fits_the_model():
    short = TableModel(lambda row: [0.5, 0.5], context=16)
    assert fitting(short, None) == 16
    assert fitting(short, 8) == 8
    assert fitting(bigram(ROWS), None) == 1024
    with pytest.raises(ValueError, match="at most 16"):
        fitting(short, 17)


def learned(context):
    torch.manual_seed(0)
    return TransformerConfig(
        vocab_size=11,
        width=8,
        layers=1,
        heads=2,
        kv_heads=2,
        head_width=4,
        inner_width=12,
        context=context,
        positions="learned",
    ).build()


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_windows_of_different_sizes_stay_within_learned_positions(batch):
    model = learned(6)
    row = torch.randint(11, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    parts = forced(model, [row, row[:9], row[:3]])
    want = []
    for part in parts:
        with torch.no_grad():
            logp_TV = model(torch.tensor([part.tokens]))[0]
        want += [
            (part.text, part.tokens[t], logp_TV[t - 1, part.tokens[t]].item())
            for t in range(part.first, len(part.tokens))
        ]
    found = sorted(scored(model, parts, batch))
    assert [each[:2] for each in found] == [each[:2] for each in sorted(want)]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in sorted(want)], abs=1e-5)


@settings(deadline=None)
@given(st.lists(st.integers(2, 50), min_size=1, max_size=5), st.integers(2, 9), st.data())
def test_no_row_is_ever_read_beyond_its_own_window(lengths, context, data):
    stride, batch = data.draw(st.integers(1, context - 1)), data.draw(st.integers(1, 5))
    inner = random_table(4, seed=3, order=2)

    def table(row):
        assert len(row) < context, "the last token of a window is scored, and not read"
        return inner.table(row)

    rows = [[i % 4 for i in range(length)] for length in lengths]
    model = TableModel(table, context=context)
    found = scored(model, windows(rows, context, stride), batch)
    assert len(found) == sum(length - 1 for length in lengths)


def test_an_encoder_decoder_scores_every_token_of_its_targets():
    model = Answers()
    parts = forced(model, [[0, 1], [2]], [[1, 1, 1], [2]])
    assert parts == [Window(0, (1, 1, 1, 0, 1), 3), Window(1, (2, 2), 1)]
    # 0 after 1+1+1, 1 after 1+1+1+0, and 2 after 2
    want = [(0, 0, ROWS[0][0]), (0, 1, ROWS[0][1]), (1, 2, ROWS[2][2])]
    found = sorted(scored(model, parts, 8))
    assert [each[:2] for each in found] == [each[:2] for each in want]
    assert [each[2] for each in found] == pytest.approx([torch.tensor(p).log().item() for *_, p in want])


def test_a_target_that_is_a_string_has_no_beginning_and_an_end():
    model = Answers()
    model.tokenizer, model.vocab_size = Spelt(), 5
    assert forced(model, ["ab", [0, 1]], ["c", [2]]) == [
        Window(0, (3, 2, 0, 1, 4), 2),
        Window(1, (2, 0, 1), 1),
    ]


def test_long_pairs_are_cut_or_raise():
    model = Answers()
    assert paired(model, [([1] * 4, [2] * 6)], cut=True) == [Window(0, (1, 1, 1, 1, 2, 2, 2, 2), 4)]
    with pytest.raises(ValueError, match="pair 0 has a target of 6 tokens but the context is 4"):
        paired(model, [([1] * 4, [2] * 6)])
    with pytest.raises(ValueError, match="pair 0 has a source of 5 tokens"):
        paired(model, [([1] * 5, [2])], cut=True)
    for source, target in (([], [1]), ([1], [])):
        with pytest.raises(ValueError, match=r"pair 0 has .* leave out pairs"):
            paired(model, [(source, target)])


def test_sources_belong_to_encoder_decoders():
    with pytest.raises(ValueError, match=r"the model is an encoder–decoder: give sources=\[…\]"):
        forced(Answers(), [[0, 1]])
    with pytest.raises(ValueError, match="one source for each text"):
        forced(Answers(), [[0, 1]], [[1], [2]])
    with pytest.raises(ValueError, match="one source for each text"):
        forced(Answers(), ["a"], "a")
    with pytest.raises(ValueError, match="leave them out"):
        forced(Answers(), [[0, 1]], [[1]], stride=1)
    with pytest.raises(ValueError, match="sources are for encoder–decoders"):
        forced(bigram(ROWS), [[0, 1]], [[1]])


def test_tokens_are_those_of_the_model():
    model = bigram(ROWS)
    assert token_ids(model, torch.tensor([0, 2]), 0) == (0, 2)
    assert token_ids(model, np.array([1, 2]), 0) == (1, 2)
    with pytest.raises(ValueError, match=r"text 1 holds token 3, outside the model's vocabulary 0…2"):
        encode(model, [[0, 1], [0, 3]])
    with pytest.raises(ValueError, match="holds token -1"):
        encode(model, [[0, -1]])
    with pytest.raises(TypeError, match="text 0 is bytes: decode it"):
        encode(model, [b"ab"])
    for wrong in ([0.5, 1], None, ["a", "b"], 7):
        with pytest.raises(TypeError, match=r"text 0 (is None|is 7|holds 0.5|holds 'a')"):
            encode(model, [wrong])


def test_a_source_is_read_in_its_own_vocabulary():
    class Source:
        def encode(self, text):
            return [9] * len(text)

    class Target:
        bos_id, eos_ids = None, frozenset({2})

        def encode(self, text):
            return [1] * len(text)

    class Translator(Answers):
        tokenizer, source_tokenizer, source_vocab_size = Target(), Source(), 10

    (window,) = forced(Translator(), ["a"], sources=["bc"])
    assert (window.tokens, window.first) == ((9, 9, 1, 2), 2)
    assert token_ids(Translator(), [9], 0, "source") == (9,)
    with pytest.raises(ValueError, match="outside the model's vocabulary 0…2"):
        token_ids(Translator(), [9], 0)


def test_models_that_do_not_generate_text_raise():
    labels = SimpleNamespace(labels=("a", "b"), tokenizer=None, vocab_size=3)
    for model, said in (
        (labels, "use us.predict"),
        ("smollm2", "load it first"),
        (None, "cannot be decoded"),
    ):
        with pytest.raises(TypeError, match=said):
            forced(model, [[0, 1]])


def test_pairs_of_tokens():
    assert token_pairs([([1], torch.tensor([2, 3])), ((), (4,))]) == [((1,), (2, 3)), ((), (4,))]
    with pytest.raises(ValueError, match="texts is empty"):
        token_pairs([])
    with pytest.raises(ValueError, match="must have pairs"):
        token_pairs([([0],)])
