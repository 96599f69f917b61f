import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.batching import BatchScheduler, SlotClosed
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.testing import TableModel, random_table


def tokens(*rows):
    return torch.tensor(rows)


@pytest.fixture
def model():
    return random_table(9, seed=2, order=4)


@pytest.fixture
def batch(model):
    return BatchScheduler(model, model.joining)


def said(model, *rows):
    return model.start(list(rows))[0].logp_NV


def test_lanes_go_on_at_their_own_pace(model, batch):
    (first, a), (second, b) = batch.begin([[[1], [2, 3]], [[4]]])
    assert torch.equal(first.logp_NV, said(model, [1], [2, 3]))
    assert torch.equal(second.logp_NV, said(model, [4]))
    (step,) = batch.extend([(b, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    batch.pick(a, [1, 1, 0])  # a beam takes its second row twice
    ahead, beam = batch.extend([(b, tokens([6, 7])), (a, tokens([5], [6], [7]))])  # of two widths
    assert torch.equal(ahead.logp_NV, said(model, [4, 5, 6], [4, 5, 6, 7]))
    assert torch.equal(beam.logp_NV, said(model, [2, 3, 5], [2, 3, 6], [1, 7]))
    batch.rewind(b, 2)
    (step,) = batch.extend([(b, tokens([8]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5, 8]))
    assert batch.rows == 4


def test_rows_that_nobody_holds_are_gone(model, batch):
    (_, a), (_, b), (_, c) = batch.begin([[[1]], [[2], [3]], [[4]]])
    del b
    a.open = False
    assert batch.rows == 1
    (step,) = batch.extend([(c, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    del c
    batch.sweep()
    assert batch._state is None


def test_who_asks_what_cannot_be_is_told_alone():
    model = TableModel(lambda row: [0.5, 0.5], context=3)
    batch = BatchScheduler(model, model.joining)
    (_, good), bad, (_, full) = batch.begin([[[0]], [[7]], [[0, 1, 1]]])
    assert isinstance(bad, ValueError)
    step, error = batch.extend([(good, tokens([1])), (full, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)
    assert "context" in str(error)
    (step,) = batch.extend([(good, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)


def test_a_translation_is_told_of_its_own_source_alone():
    torch.manual_seed(0)
    shape = TransformerSeq2SeqConfig(
        vocab_size=11, width=8, encoder_layers=1, decoder_layers=1, heads=2, inner_width=8, bos=1, eos=2
    )
    model = shape.build().eval()
    model.engine = "compiled"
    batch = BatchScheduler(model, model.joining)
    ((first, short),) = batch.begin([[[3, 4]]])
    ((_, long),) = batch.begin([[[3, 4, 5, 6, 7, 8]]])
    step, other = batch.extend([(short, tokens([5])), (long, tokens([5]))])
    alone, _ = model.step(model.start([[3, 4]])[1], torch.tensor([5]))
    assert step.attention.shape == first.attention.shape == alone.attention.shape
    assert torch.equal(step.attention, alone.attention)
    assert torch.equal(step.logp_NV, alone.logp_NV)
    assert other.attention.shape[1] > step.attention.shape[1]


@pytest.fixture(scope="module")
def compiled_model():
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=20, context=400
    )
    model = shape.build().eval()
    model.engine = "compiled"
    return model


def test_hidden_vectors_of_prompts_are_told(compiled_model):
    batch = BatchScheduler(compiled_model, compiled_model.joining)
    ((_, a),) = batch.begin([[[1]]])
    hidden, step, lane = batch.read_all([[3, 4, 5]])
    expected, alone, _ = compiled_model.read_all([[3, 4, 5]])
    assert torch.equal(hidden, expected)
    assert torch.equal(step.logp_NV, alone.logp_NV)
    assert (a.rows, lane.rows) == ([0], [1])


def test_a_prompt_that_begins_as_a_row_shares_it(model):
    batch = BatchScheduler(model, model.joining, kept_bytes=100)
    ((_, a),) = batch.begin([[[1, 2, 3]]])
    batch.extend([(a, tokens([4]))])
    ((step, b),) = batch.begin([[[1, 2, 3, 4], [1, 2, 5], [7]]])  # behind 123, behind 12, and behind nothing
    assert torch.equal(step.logp_NV, said(model, [1, 2, 3, 4], [1, 2, 5], [7]))
    assert (batch.read_tokens, batch.shared_tokens) == (3 + 1 + 1 + 1, 3 + 2)
    one, three = batch.extend([(a, tokens([6])), (b, tokens([8], [8], [8]))])
    assert torch.equal(one.logp_NV, said(model, [1, 2, 3, 4, 6]))
    assert torch.equal(three.logp_NV, said(model, [1, 2, 3, 4, 8], [1, 2, 5, 8], [7, 8]))


def test_a_row_is_kept_until_its_memory_is_needed(model):
    batch = BatchScheduler(model, model.joining, kept_bytes=6)  # a table's token is a byte
    for prompt in ([1, 2, 3], [4, 5, 6], [1, 2, 3, 7]):  # the last one takes the first one's place
        ((_, lane),) = batch.begin([[prompt]])
        batch.keep(lane)
        del lane
        batch.compact()
    assert batch.kept == 1  # 4 + 3 bytes are too many, and 456 was used before 1237
    assert batch.shared_tokens == 3
    batch.begin([[[4, 5, 6, 7]]])
    assert batch.shared_tokens == 3


def test_nothing_is_kept_where_there_is_no_memory_for_it(model, batch):
    ((_, lane),) = batch.begin([[[1, 2, 3]]])
    batch.keep(lane)
    del lane
    batch.sweep()
    assert (batch.kept, batch._state) == (0, None)


def test_a_lane_that_was_closed_is_not_read(model, batch):
    (_, a), (_, b) = batch.begin([[[1]], [[2]]])
    a.open = False  # its deadline passed while the engine gathered
    gone, step = batch.extend([(a, tokens([3])), (b, tokens([4]))])
    assert isinstance(gone, SlotClosed)
    assert torch.equal(step.logp_NV, said(model, [2, 4]))
    with pytest.raises(SlotClosed):
        batch.rewind(a, 1)


def test_a_prompt_that_fails_leaves_the_others_as_they_were(model):
    batch = BatchScheduler(model, model.joining, kept_bytes=100)
    ((_, a),) = batch.begin([[[1, 2, 3]]])
    bad, (step, b) = batch.begin([[[1, 2, 99]], [[1, 2, 4]]])
    assert isinstance(bad, ValueError)
    assert torch.equal(step.logp_NV, said(model, [1, 2, 4]))
    one, two = batch.extend([(a, tokens([5])), (b, tokens([6]))])
    assert torch.equal(one.logp_NV, said(model, [1, 2, 3, 5]))
    assert torch.equal(two.logp_NV, said(model, [1, 2, 4, 6]))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_however_texts_begin_and_go_on_their_bits_are_those_of_one_read_alone(compiled_model, data):
    """Prompts of 1 to 150 tokens that have any part of others in common, some of them in one pass."""
    batch = BatchScheduler(compiled_model, compiled_model.joining, kept_bytes=40_000)
    known, lanes = [[1]], []
    for _ in range(data.draw(st.integers(2, 5))):
        prompts = []
        for _ in range(data.draw(st.integers(1, 3))):
            donor = data.draw(st.sampled_from(known))
            cut = data.draw(st.integers(0, len(donor)))
            end = data.draw(st.integers(1, 90))
            prompts.append([*donor[:cut], *(1 + (7 * end + k) % 30 for k in range(end))])
        known += prompts
        for prompt, (step, lane) in zip(prompts, batch.begin([[prompt] for prompt in prompts]), strict=True):
            assert torch.equal(step.logp_NV, said(compiled_model, prompt))
            lanes.append((lane, list(prompt)))
        leaving = data.draw(st.integers(0, len(lanes)))
        for lane, _ in lanes[:leaving]:
            batch.keep(lane)
        lanes = lanes[leaving:]
        for _ in range(data.draw(st.integers(0, 2))):
            steps = batch.extend([(lane, tokens([len(text) % 31])) for lane, text in lanes])
            for (_, text), step in zip(lanes, steps, strict=True):
                text.append(len(text) % 31)
                assert torch.equal(step.logp_NV, said(compiled_model, text))
        known += [text for _, text in lanes]
    batch.compact()
    kept = torch.tensor([lane.rows[0] for lane in batch._kept.lanes], dtype=torch.int64)
    assert compiled_model.forking.bytes_held(batch._state, kept) <= 40_000
