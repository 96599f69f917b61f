import pytest
import torch

import unspool as us
from unspool.integrations.huggingface.loading import from_huggingface

RECURRENT = ["mamba", "lfm2", "lfm2_moe", "rwkv"]
CAUSAL = ["gpt2", "llama", "opt", "gemma2", *RECURRENT]
PROMPTS = [[5, 6, 7], [9], [11, 12]]


@pytest.mark.parametrize("family", CAUSAL)
def test_greedy_text_is_that_of_generate(families, family):
    theirs = families[family]
    found = us.generate(from_huggingface(theirs), PROMPTS, us.Greedy(), max_new_tokens=12, stop_ids=[2])
    for prompt, out in zip(PROMPTS, found, strict=True):
        want = theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)).long(), max_new_tokens=12
        )
        assert list(out.tokens) == want[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", CAUSAL)
@torch.no_grad()
def test_moved_rows_say_what_one_parallel_pass_says(families, family):
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
def test_what_was_read_is_forgotten_again_beyond_a_sliding_window_too(families, family):
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


def test_what_the_head_reads_of_a_prompt_is_told(llama):
    model = from_huggingface(llama)
    hidden_NTD, step, _ = model.read_all([[5, 6, 7], [9]])
    assert hidden_NTD.shape == (2, 3, 16)
    torch.testing.assert_close(hidden_NTD[:, -1], step.hidden_ND)


@pytest.mark.parametrize("family", ["minimax", "bart decoder"])
@torch.no_grad()
def test_a_model_that_cannot_mask_padding_reads_prompts_of_equal_length(families, family):
    model = from_huggingface(families[family])
    step, state = model.start([[5, 6, 7], [9, 8, 7]])
    _, state = model.step(state, torch.tensor([3, 4]))
    step, _ = model.step(state.select(torch.tensor([1, 0, 1])), torch.tensor([8, 9, 10]))
    for row, text in enumerate([[9, 8, 7, 4, 8], [5, 6, 7, 3, 9], [9, 8, 7, 4, 10]]):
        want = model(torch.tensor([text]))[0, -1]
        torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"does not mask padding.*: say batch_size=1"):
        model.start([[5, 6], [7]])
    found = us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=12, batch_size=1)
    for prompt, out in zip(PROMPTS, found, strict=True):
        mask = torch.ones(1, len(prompt)).long()
        want = families[family].generate(torch.tensor([prompt]), attention_mask=mask, max_new_tokens=12)
        assert list(out.tokens) == want[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", ["recurrent_gemma", "openai-gpt"])
def test_a_model_that_returns_no_cache_is_refused_by_name(families, family):
    with pytest.raises(
        ValueError, match=rf"\({family}\) returns no cache.*: decode it with its own generate"
    ):
        us.generate(from_huggingface(families[family]), [5, 6], us.Greedy(), max_new_tokens=2)


@pytest.mark.parametrize("family", [*RECURRENT, "minimax"])
def test_recurrent_and_hybrid_models_cannot_be_rewound(families, family):
    assert from_huggingface(families[family]).rewindable is None


def test_texts_end_at_the_eos_of_the_config_if_there_is_no_tokenizer(llama):
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
