import pytest
import torch
from hypothesis import given, settings, strategies as st

import unspool as us
from unspool.decode.batching import BatchScheduler, CachedPrefixModel, SlotClosed
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


def test_slots_grow_independently(model, batch):
    (first, a), (second, b) = batch.prefill([[[1], [2, 3]], [[4]]])
    assert torch.equal(first.logp_NV, said(model, [1], [2, 3]))
    assert torch.equal(second.logp_NV, said(model, [4]))
    (step,) = batch.extend([(b, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    batch.select(a, [1, 1, 0])  # a beam takes its second row twice
    ahead, beam = batch.extend([(b, tokens([6, 7])), (a, tokens([5], [6], [7]))])  # of two widths
    assert torch.equal(ahead.logp_NV, said(model, [4, 5, 6], [4, 5, 6, 7]))
    assert torch.equal(beam.logp_NV, said(model, [2, 3, 5], [2, 3, 6], [1, 7]))
    batch.rewind(b, 2)
    (step,) = batch.extend([(b, tokens([8]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5, 8]))
    assert batch.rows == 4


def test_rows_of_closed_slots_are_dropped(model, batch):
    (_, a), (_, b), (_, c) = batch.prefill([[[1]], [[2], [3]], [[4]]])
    del b
    a.is_open = False
    assert batch.rows == 1
    (step,) = batch.extend([(c, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    del c
    batch.sweep()
    assert batch._state is None


def test_only_the_request_that_fails_gets_the_error():
    model = TableModel(lambda row: [0.5, 0.5], context=3)
    batch = BatchScheduler(model, model.joining)
    (_, good), bad, (_, full) = batch.prefill([[[0]], [[7]], [[0, 1, 1]]])
    assert isinstance(bad, ValueError)
    step, error = batch.extend([(good, tokens([1])), (full, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)
    assert "context" in str(error)
    (step,) = batch.extend([(good, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)


def test_attention_covers_only_the_source_of_the_request():
    torch.manual_seed(0)
    shape = TransformerSeq2SeqConfig(
        vocab_size=11, width=8, encoder_layers=1, decoder_layers=1, heads=2, inner_width=8, bos=1, eos=2
    )
    model = shape.build().eval()
    model.engine = "compiled"
    batch = BatchScheduler(model, model.joining)
    ((first, short),) = batch.prefill([[[3, 4]]])
    ((_, long),) = batch.prefill([[[3, 4, 5, 6, 7, 8]]])
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


def test_read_all_returns_the_hidden_states_of_prompts(compiled_model):
    batch = BatchScheduler(compiled_model, compiled_model.joining)
    ((_, a),) = batch.prefill([[[1]]])
    hidden, step, slot = batch.read_all([[3, 4, 5]])
    expected, alone, _ = compiled_model.read_all([[3, 4, 5]])
    assert torch.equal(hidden, expected)
    assert torch.equal(step.logp_NV, alone.logp_NV)
    assert (a.rows, slot.rows) == ([0], [1])


def test_a_prompt_reuses_the_longest_cached_prefix(model):
    batch = BatchScheduler(model, model.joining, cache_bytes=100)
    ((_, a),) = batch.prefill([[[1, 2, 3]]])
    batch.extend([(a, tokens([4]))])
    ((step, b),) = batch.prefill(
        [[[1, 2, 3, 4], [1, 2, 5], [7]]]
    )  # behind 123, behind 12, and behind nothing
    assert torch.equal(step.logp_NV, said(model, [1, 2, 3, 4], [1, 2, 5], [7]))
    assert (batch.read_tokens, batch.shared_tokens) == (3 + 1 + 1 + 1, 3 + 2)
    one, three = batch.extend([(a, tokens([6])), (b, tokens([8], [8], [8]))])
    assert torch.equal(one.logp_NV, said(model, [1, 2, 3, 4, 6]))
    assert torch.equal(three.logp_NV, said(model, [1, 2, 3, 4, 8], [1, 2, 5, 8], [7, 8]))


def test_rewound_tokens_are_not_in_the_prefix_cache(model):
    batch = BatchScheduler(model, model.joining, cache_bytes=100)
    ((_, a),) = batch.prefill([[[1, 2]]])
    batch.extend([(a, tokens([3, 4]))])
    batch.rewind(a, 2)
    batch.extend([(a, tokens([5]))])
    batch.release(a)
    del a
    ((step, _),) = batch.prefill([[[1, 2, 5, 6], [1, 2, 3, 4, 6]]])  # behind 125 and behind 12
    assert torch.equal(step.logp_NV, said(model, [1, 2, 5, 6], [1, 2, 3, 4, 6]))
    assert batch.shared_tokens == 3 + 2


def test_cached_rows_are_evicted_when_memory_is_needed(model):
    batch = BatchScheduler(model, model.joining, cache_bytes=6)  # a table's token is a byte
    for prompt in ([1, 2, 3], [4, 5, 6], [1, 2, 3, 7]):  # the last one takes the first one's place
        ((_, slot),) = batch.prefill([[prompt]])
        batch.release(slot)
        del slot
        batch.compact()
    assert batch.cached_rows == 1  # 4 + 3 bytes are too many, and 456 was used before 1237
    assert batch.shared_tokens == 3
    batch.prefill([[[4, 5, 6, 7]]])
    assert batch.shared_tokens == 3


def test_no_row_is_cached_without_memory(model, batch):
    ((_, slot),) = batch.prefill([[[1, 2, 3]]])
    batch.release(slot)
    del slot
    batch.sweep()
    assert (batch.cached_rows, batch._state) == (0, None)


def test_a_closed_slot_is_not_read(model, batch):
    (_, a), (_, b) = batch.prefill([[[1]], [[2]]])
    a.is_open = False  # its deadline passed while the engine gathered
    gone, step = batch.extend([(a, tokens([3])), (b, tokens([4]))])
    assert isinstance(gone, SlotClosed)
    assert torch.equal(step.logp_NV, said(model, [2, 4]))
    with pytest.raises(SlotClosed):
        batch.rewind(a, 1)


def test_a_prompt_that_fails_leaves_the_others_as_they_were(model):
    batch = BatchScheduler(model, model.joining, cache_bytes=100)
    ((_, a),) = batch.prefill([[[1, 2, 3]]])
    bad, (step, b) = batch.prefill([[[1, 2, 99]], [[1, 2, 4]]])
    assert isinstance(bad, ValueError)
    assert torch.equal(step.logp_NV, said(model, [1, 2, 4]))
    one, two = batch.extend([(a, tokens([5])), (b, tokens([6]))])
    assert torch.equal(one.logp_NV, said(model, [1, 2, 3, 5]))
    assert torch.equal(two.logp_NV, said(model, [1, 2, 4, 6]))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_log_probabilities_are_the_same_bits_with_and_without_shared_prefixes(compiled_model, data):
    """Prompts of 1 to 150 tokens that have any part of others in common, some of them in one pass."""
    batch = BatchScheduler(compiled_model, compiled_model.joining, cache_bytes=40_000)
    known, slots = [[1]], []
    for _ in range(data.draw(st.integers(2, 5))):
        prompts = []
        for _ in range(data.draw(st.integers(1, 3))):
            donor = data.draw(st.sampled_from(known))
            cut = data.draw(st.integers(0, len(donor)))
            end = data.draw(st.integers(1, 90))
            prompts.append([*donor[:cut], *(1 + (7 * end + k) % 30 for k in range(end))])
        known += prompts
        for prompt, (step, slot) in zip(
            prompts, batch.prefill([[prompt] for prompt in prompts]), strict=True
        ):
            assert torch.equal(step.logp_NV, said(compiled_model, prompt))
            slots.append((slot, list(prompt)))
        leaving = data.draw(st.integers(0, len(slots)))
        for slot, _ in slots[:leaving]:
            batch.release(slot)
        slots = slots[leaving:]
        for _ in range(data.draw(st.integers(0, 2))):
            steps = batch.extend([(slot, tokens([len(text) % 31])) for slot, text in slots])
            for (_, text), step in zip(slots, steps, strict=True):
                text.append(len(text) % 31)
                assert torch.equal(step.logp_NV, said(compiled_model, text))
        known += [text for _, text in slots]
    batch.compact()
    kept = torch.tensor([slot.rows[0] for slot in batch._cache.slots], dtype=torch.int64)
    assert compiled_model.forking.bytes_held(batch._state, kept) <= 40_000


DECODERS = [
    us.Greedy(),
    us.Sample(),
    us.Beam(3),
    us.ContrastiveSearch(k=3, alpha=0.5),
    us.MBR(3, us.Sample(), us.decode.TokenF1()),
]


@pytest.fixture(scope="module")
def transformer():
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, head_width=4, inner_width=20, context=200
    )
    return shape.build().eval()


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_a_cached_prefix_model_gives_the_same_outputs_and_reads_less(
    transformer, decoder, engine, monkeypatch
):
    monkeypatch.setattr(transformer, "engine", engine)
    cached, history = CachedPrefixModel(transformer, 2**20), [1, 2, 3]
    for turn in range(4):
        options = {"max_new_tokens": 9, "seed": turn}
        found = us.generate(cached, history, decoder, **options)
        alone = us.generate(transformer, history, decoder, **options)
        if engine == "compiled":
            assert found == alone
        assert found.tokens == alone.tokens
        assert found.logps == pytest.approx(alone.logps, rel=1e-4, abs=1e-4)
        history += [*found.tokens, 5, 6, 7]
    if not isinstance(decoder, us.ContrastiveSearch):  # which needs the hidden states of the whole prompt
        # Each turn reads the question and the last tokens of the answer.
        assert cached.batch.shared_tokens > len(history) / 2


def test_two_streams_of_a_cached_prefix_model_are_independent(transformer):
    cached = CachedPrefixModel(transformer, 2**20)
    first = us.stream(cached, [1, 2, 3], us.Sample(), max_new_tokens=9, seed=1)
    begun = next(first)
    other = us.generate(cached, [1, 2, 3, 4], us.Sample(), max_new_tokens=9, seed=2)
    assert other == us.generate(transformer, [1, 2, 3, 4], us.Sample(), max_new_tokens=9, seed=2)
    tokens = [token for piece in (begun, *first) for token in piece.tokens]
    assert tuple(tokens) == us.generate(transformer, [1, 2, 3], us.Sample(), max_new_tokens=9, seed=1).tokens


def test_a_model_that_cannot_fork_rows_is_refused():
    with pytest.raises(ValueError, match="prefix caching needs a language model whose cache"):
        CachedPrefixModel(us.models.RNNConfig(vocab_size=9, width=8).build(), 1)
