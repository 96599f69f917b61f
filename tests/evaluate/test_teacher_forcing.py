import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unspool.evaluate.teacher_forcing import Window, encode, fitting, read, windows
from unspool.testing import TableModel, bigram, random_table

ROWS = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]


class Slow:
    """A StepModel that cannot extend."""

    def __init__(self, inner):
        self.inner, self.vocab_size, self.context, self.text = inner, inner.vocab_size, None, None

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        return self.inner.step(state, tokens_N)


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


def test_long_rows_are_read_in_columns_and_change_nothing():
    row = torch.randint(5, (150,), generator=torch.Generator().manual_seed(0)).tolist()
    model = random_table(5, seed=1, order=2)
    step_by_step = [model.start([row[:t]])[0].logp_NV[0, row[t]].item() for t in range(1, len(row))]
    assert [logp for _, _, logp in scored(model, windows([row]), 2)] == pytest.approx(step_by_step)


def test_a_window_sees_nothing_before_itself():
    model = TableModel(lambda row: [0.5, 0.5] if len(row) < 3 else [0.9, 0.1])
    found = scored(model, windows([[0, 0, 0, 0, 0]], context=3, stride=1), 8)
    # places 1 and 2 have one and two tokens before them; later ones always two, never more
    assert [logp for *_, logp in found] == pytest.approx([torch.tensor(0.5).log().item()] * 4)


def test_what_cannot_be_scored_is_refused():
    model = bigram(ROWS)
    with pytest.raises(ValueError, match="text 1 has 1 tokens"):
        encode(model, [[0, 1], [2]])
    with pytest.raises(ValueError, match="no tokenizer"):
        encode(model, ["abc"])
    with pytest.raises(ValueError, match="one text or more"):
        encode(model, [])
    with pytest.raises(ValueError, match="one text or more"):
        encode(model, "abc")
    with pytest.raises(ValueError, match="context is 1"):
        windows([[0, 1]], context=1)
    with pytest.raises(ValueError, match="stride is 4"):
        windows([[0, 1]], context=4, stride=4)


def test_the_window_fits_the_model():
    short = TableModel(lambda row: [0.5, 0.5], context=16)
    assert fitting(short, None) == 16
    assert fitting(short, 8) == 8
    assert fitting(bigram(ROWS), None) == 1024
    with pytest.raises(ValueError, match="at most 16"):
        fitting(short, 17)
