from types import SimpleNamespace

import pytest
import torch

import unspool as us
from unspool.heads.softmax import step_from_logits
from unspool.integrations.huggingface.causal_model import (
    boundary_tokens,
    generation_setting,
    model_eos_ids,
)
from unspool.integrations.huggingface.loading import from_huggingface
from unspool.models.sources import BoundaryTokens
from unspool.tokenization.huggingface_tokenizer import as_token_ids

RECURRENT = ["mamba", "lfm2", "lfm2_moe"]
CAUSAL = ["gpt2", "llama", "opt", "gemma2", *RECURRENT]
PROMPTS = [[5, 6, 7], [9], [11, 12]]
V = 40


@pytest.mark.parametrize("family", CAUSAL)
def test_greedy_text_equals_generate(families, family):
    expected = families[family]
    result = us.generate(from_huggingface(expected), PROMPTS, us.Greedy(), max_new_tokens=12, stop_ids=[2])
    for prompt, out in zip(PROMPTS, result, strict=True):
        want = expected.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)).long(), max_new_tokens=12
        )
        assert list(out.tokens) == want[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", CAUSAL)
@torch.no_grad()
def test_select_equals_one_forward_pass(families, family):
    model = from_huggingface(families[family])
    step, state = model.start([[5, 6, 7], [9]])
    torch.testing.assert_close(step.logp_NV[0], model(torch.tensor([[5, 6, 7]]))[0, -1], atol=1e-4, rtol=1e-4)
    _, state = model.step(state, torch.tensor([3, 4]))
    state = state.select(torch.tensor([1, 0, 1]))
    step, _ = model.step(state, torch.tensor([8, 9, 10]))
    for row, text in enumerate([[9, 4, 8], [5, 6, 7, 3, 9], [9, 4, 10]]):
        want = model(torch.tensor([text]))[0, -1]
        torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", [family for family in CAUSAL if family not in RECURRENT])
@torch.no_grad()
def test_rewind_beyond_a_sliding_window(families, family):
    model = from_huggingface(families[family])
    _, state = model.start([[5, 6, 7, 8, 9, 10], [9]])
    step, state = model.extend(state, torch.tensor([[3, 4, 5], [6, 7, 8]]))
    want = model(torch.tensor([[5, 6, 7, 8, 9, 10, 3, 4]]))[0, -1]
    torch.testing.assert_close(step.logp_NV[1], want, atol=1e-4, rtol=1e-4)
    state = model.rewind(state, 2)
    step, _ = model.step(state, torch.tensor([11, 12]))
    for row, text in enumerate([[5, 6, 7, 8, 9, 10, 3, 11], [9, 6, 12]]):
        want = model(torch.tensor([text]))[0, -1]
        torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", [family for family in CAUSAL if family not in RECURRENT])
@torch.no_grad()
def test_rows_join_fork_and_leave(families, family):
    model = from_huggingface(families[family])

    def check(step, *texts):
        for row, text in enumerate(texts):
            want = model(torch.tensor([text]))[0, -1]
            torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)

    joining, forking = model.joining, model.forking
    state = joining.join([model.start([[5, 6, 7, 8, 9, 10], [9]])[1], model.start([[7] * 9])[1]])
    step, state = joining.extend_rows(state, torch.tensor([0, 2]), torch.tensor([[3, 4], [5, 6]]))
    check(step, [5, 6, 7, 8, 9, 10, 3], [5, 6, 7, 8, 9, 10, 3, 4], [*[7] * 9, 5], [*[7] * 9, 5, 6])
    state = joining.rewind_rows(state, torch.tensor([0]), torch.tensor([1]))
    state = forking.fork_rows(state, torch.tensor([0, 2, 1]), torch.tensor([4, 10, 0]))
    step, state = forking.read_rows(state, torch.tensor([1, 3, 4, 5]), [[11, 12], [13], [14, 15], [16] * 7])
    texts = [[9, 11, 12], [5, 6, 7, 8, 13], [*[7] * 9, 5, 14, 15], [16] * 7]
    check(step, *texts)
    with pytest.raises(IndexError):
        joining.extend_rows(state, torch.arange(6), torch.tensor([[3]] * 5 + [[V]]))
    state = state.select(torch.tensor([5, 3, 4, 1, 0]))
    texts = [texts[3], texts[1], texts[2], texts[0], [5, 6, 7, 8, 9, 10, 3]]
    for token in (17, 18):
        step, state = joining.extend_rows(state, torch.arange(5), torch.tensor([[token]] * 5))
        texts = [[*text, token] for text in texts]
        check(step, *texts)
    assert len({row.batch for row in state.rows}) == 1
    kept = forking.compact(state.select(torch.tensor([0])))
    assert kept.rows[0].batch.size == 1
    assert forking.bytes_held(kept, torch.tensor([0])) == sum(
        part.nbytes for part in kept.rows[0].batch.state.keys_values()
    )


@pytest.mark.parametrize("family", [*RECURRENT, "minimax", "bart decoder", "openai-gpt", "rwkv"])
def test_other_caches_cannot_be_joined(families, family):
    model = from_huggingface(families[family])
    assert model.joining is model.forking is None


def test_read_all_returns_hidden_states_of_the_prompt(llama):
    model = from_huggingface(llama)
    hidden_MD, step, _ = model.read_all([[5, 6, 7], [9]])
    assert hidden_MD.shape == (3 + 1, 16)
    torch.testing.assert_close(hidden_MD[[2, 3]], step.hidden_ND)


@pytest.mark.parametrize("family", ["minimax", "bart decoder"])
@torch.no_grad()
def test_models_without_padding_masks_need_prompts_of_equal_length(families, family):
    model = from_huggingface(families[family])
    step, state = model.start([[5, 6, 7], [9, 8, 7]])
    _, state = model.step(state, torch.tensor([3, 4]))
    step, _ = model.step(state.select(torch.tensor([1, 0, 1])), torch.tensor([8, 9, 10]))
    for row, text in enumerate([[9, 8, 7, 4, 8], [5, 6, 7, 3, 9], [9, 8, 7, 4, 10]]):
        want = model(torch.tensor([text]))[0, -1]
        torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"does not mask padding.*: use batch_size=1"):
        model.start([[5, 6], [7]])
    result = us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=12, batch_size=1)
    for prompt, out in zip(PROMPTS, result, strict=True):
        mask = torch.ones(1, len(prompt)).long()
        want = families[family].generate(torch.tensor([prompt]), attention_mask=mask, max_new_tokens=12)
        assert list(out.tokens) == want[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", ["recurrent_gemma", "openai-gpt", "rwkv"])
def test_models_without_a_cache_are_rejected(families, family):
    with pytest.raises(ValueError, match=rf"\({family}\) returns no cache.*: use its own generate"):
        us.generate(from_huggingface(families[family]), [5, 6], us.Greedy(), max_new_tokens=2)


@pytest.mark.parametrize("family", [*RECURRENT, "minimax"])
def test_recurrent_and_hybrid_models_cannot_be_rewound(families, family):
    assert from_huggingface(families[family]).rewindable is None


def test_eos_of_the_config_is_used_without_a_tokenizer(llama):
    model = from_huggingface(llama)
    for seed in range(20):
        out = us.generate(model, [5, 6], us.Sample(us.Temperature(3.0)), max_new_tokens=40, seed=seed)
        assert 2 not in out.tokens[:-1]
        assert (out.finish_reason == "eos") == (out.tokens[-1] == 2)
    llama.generation_config.eos_token_id = [7, 999]
    try:
        assert model.eos_ids == {7}  # 999 is outside of the vocabulary
    finally:
        llama.generation_config.eos_token_id = 2


FAMILIES = ["gpt2", "llama", "opt", "t5", "bart", "marian", "gemma2", "mamba"]


def test_a_step_has_the_log_normaliser():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, -torch.inf, 0.0]])
    step = step_from_logits(logits, None)
    torch.testing.assert_close(step.logp_NV.exp().sum(-1), torch.ones(2))
    torch.testing.assert_close(step.logp_NV + step.log_norm_N[:, None], logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_output_matrix_of_linear_heads(families, family):
    model = from_huggingface(families[family])
    matrix = model.output_matrix
    assert (matrix is None) == (family == "gemma2")  # its logits are capped
    if matrix is not None:
        step, _ = model.start([[5, 6, 2]])
        want = (matrix.detach() @ step.hidden_ND[0]).log_softmax(-1)
        torch.testing.assert_close(step.logp_NV[0], want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_vocab_size_context_and_engine(families, family):
    model = from_huggingface(families[family])
    assert model.vocab_size == 40
    assert model.context == (None if family in ("t5", "mamba") else 64)
    assert model.engine == "transformers"
    assert model.is_encoder_decoder == (family in ("t5", "bart", "marian"))
    assert (model.rewindable is None) == (family == "mamba")


@pytest.mark.parametrize("family", FAMILIES)
def test_forward_hooks_are_removed(families, family):
    model = from_huggingface(families[family])
    model.start([[5, 6, 2]])
    assert not model.head._forward_pre_hooks
    with pytest.raises(RuntimeError):
        model.run(input_ids=torch.zeros(1, 1))  # not whole numbers
    assert not model.head._forward_pre_hooks


def model(generation=None, **config):
    return SimpleNamespace(
        generation_config=None if generation is None else SimpleNamespace(**generation),
        config=SimpleNamespace(**config),
    )


def test_generation_config_takes_precedence():
    settings = model({"eos_token_id": [2, 7], "pad_token_id": None}, eos_token_id=3, pad_token_id=0)
    assert model_eos_ids(settings) == {2, 7}
    assert generation_setting(settings, "pad_token_id") == 0
    assert generation_setting(settings, "bos_token_id") is None


@pytest.mark.parametrize(("value", "result"), [(None, set()), (2, {2}), ([2, 3], {2, 3}), ((4,), {4})])
def test_as_token_ids(value, result):
    assert as_token_ids(value) == result


def test_decoder_start_token_or_bos():
    assert boundary_tokens(model(eos_token_id=2, bos_token_id=1, decoder_start_token_id=0), None).bos == 0
    assert boundary_tokens(model(eos_token_id=2, bos_token_id=1), None).bos == 1
    with pytest.raises(ValueError, match="has no decoder_start_token_id"):
        boundary_tokens(model(eos_token_id=2), None)


def test_sources_are_not_truncated():
    ends = BoundaryTokens(1, frozenset({2, 3}), source_bos=True)
    assert ends.source([1, 5]) == [1, 5, 2]
    assert ends.source([1, 5, 3]) == [1, 5, 3]
