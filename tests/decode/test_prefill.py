import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.batching import BatchScheduler
from unspool.decode.prefill import PendingPrompt, Prefill, Slot, first_fitting, plan_chunks
from unspool.models.transformer_lm import TransformerConfig
from unspool.testing import random_table

LONG = list(range(100))


def no_match(prompt):
    return 0, 0


def sizes(prompts, max_tokens):
    chunks = {chunk.prompt: chunk.end - chunk.begin for chunk in plan_chunks(prompts, max_tokens, no_match)}
    return [chunks.get(prompt, 0) for prompt in prompts]


def test_half_of_a_chunk_is_for_the_oldest_prompt_and_the_rest_for_the_shortest():
    prompts = [PendingPrompt([k] * size) for k, size in enumerate((1000, 30, 500, 20))]
    assert sizes(prompts, 128) == [64, 30, 14, 20]
    assert sizes(prompts[:1], 128) == [128]
    assert sizes(prompts, 2000) == [1000, 30, 500, 20]
    assert sizes(prompts, 1) == [1, 0, 0, 0]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 200))
def test_a_chunk_is_full_and_never_too_long(lengths, max_tokens):
    read = sizes([PendingPrompt([k] * size) for k, size in enumerate(lengths)], max_tokens)
    assert sum(read) == min(max_tokens, sum(lengths))
    assert all(0 <= done <= size for done, size in zip(read, lengths, strict=True))
    assert read[0] >= min(lengths[0], max_tokens / 2)


def test_prompts_with_a_common_prefix_wait_for_the_first_of_them():
    texts = [[*LONG, 1], [*LONG, 2], [5, 6], [*LONG[:50], 3]]
    prompts = [PendingPrompt(text) for text in texts]
    planned = [chunk.prompt for chunk in plan_chunks(prompts, 1000, no_match)]
    assert planned == [prompts[0], prompts[2], prompts[3]]  # 50 shared tokens are not worth another pass
    prompts[0].slot, prompts[0].read = Slot([0]), 60
    (chunk,) = (it for it in plan_chunks(prompts, 1000, lambda _: (0, 60)) if it.prompt is prompts[1])
    assert (chunk.begin, chunk.end, chunk.source) == (60, 101, 0)  # the rest is not worth waiting for
    other = PendingPrompt(texts[1], owner="ben")
    assert other in [it.prompt for it in plan_chunks([prompts[0], other], 1000, no_match)]


def test_the_first_requests_that_fit_and_at_least_one():
    requests = [Prefill([[1] * 9]), Prefill([[1] * 3]), Prefill([[1] * 3, [2]])]
    assert first_fitting(requests, 6) == requests[:1]
    assert first_fitting(requests[1:], 7) == requests[1:]
    assert first_fitting(requests[1:], 6) == requests[1:2]


def test_the_last_token_is_always_read():
    model = random_table(9, seed=2)
    batch = BatchScheduler(model, model.joining)
    ((_, held),) = batch.prefill([[[1, 2, 3, 4]]])
    batch.prefill([[[1, 2, 3], [1, 2, 3, 4, 5]]])
    assert (batch.read_tokens, batch.shared_tokens) == (4 + 1 + 1, 2 + 4)
    assert held.rows == [0]


@pytest.fixture(scope="module")
def compiled_model():
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=20, context=400
    )
    model = shape.build().eval()
    model.engine = "compiled"
    return model


@pytest.mark.parametrize("chunk", [1, 7, 128])
def test_prompts_read_in_chunks_give_the_same_bits(compiled_model, chunk):
    batch = BatchScheduler(compiled_model, compiled_model.joining)
    texts = [[1 + (7 * k + n) % 30 for n in range(size)] for k, size in enumerate((300, 5, 40))]
    prefills, rounds = [Prefill([texts[0], texts[2]]), Prefill([texts[1]])], 0
    while waiting := [it for it in prefills if it.result is None]:
        batch.advance(waiting, chunk)
        rounds += 1
    assert rounds == -(-345 // chunk)
    for prefill in prefills:
        step, slot = prefill.result
        expected, state = compiled_model.start(prefill.texts)
        assert torch.equal(step.logp_NV, expected.logp_NV)
        assert torch.equal(step.hidden_ND, expected.hidden_ND)
        tokens = torch.full((len(prefill.texts), 1), 9)
        (later,) = batch.extend([(slot, tokens)])
        assert torch.equal(later.logp_NV, compiled_model.step(state, tokens[:, 0])[0].logp_NV)
    assert batch.read_tokens == 345


def test_a_request_that_is_cancelled_between_chunks_leaves_no_rows(compiled_model):
    batch = BatchScheduler(compiled_model, compiled_model.joining)
    ((_, other),) = batch.prefill([[[3, 4]]])
    leaving, staying = Prefill([[1] * 300]), Prefill([[2] * 200])
    batch.advance([leaving, staying], 128)
    assert batch.rows == 3
    leaving.close()
    batch.advance([staying], 1000)
    step, slot = staying.result
    assert (batch.rows, len(batch._tokens), other.rows, slot.rows) == (2, 2, [0], [1])
    assert torch.equal(step.logp_NV, compiled_model.start([[2] * 200])[0].logp_NV)


def test_only_the_request_that_fails_in_a_later_chunk_gets_the_error(compiled_model):
    batch = BatchScheduler(compiled_model, compiled_model.joining)
    good, bad = Prefill([[1] * 60]), Prefill([[*[2] * 40, 99]])
    for _ in range(20):
        if good.result is None or bad.result is None:
            batch.advance([it for it in (good, bad) if it.result is None], 16)
    assert isinstance(bad.result, IndexError)
    step, _ = good.result
    assert torch.equal(step.logp_NV, compiled_model.start([[1] * 60])[0].logp_NV)
    batch.sweep()
    assert batch.rows == len(batch._tokens) == 1


def test_owners_do_not_share_prefixes():
    model = random_table(9, seed=2)
    batch = BatchScheduler(model, model.joining, cache_bytes=1000)
    for owner, shared in (("anna", 0), ("ben", 0), ("anna", 3), ("ben", 6)):
        prefill = Prefill([[1, 2, 3, 4]], owner)
        batch.advance([prefill], 100)
        assert batch.shared_tokens == shared
        batch.release(prefill.result[1])
        del prefill
        batch.compact()
