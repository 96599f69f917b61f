import pytest
import torch

import unspool as us
from unspool.adapters.huggingface.wrapping import from_huggingface

CAUSAL = ["gpt2", "llama", "opt", "gemma2", "mamba"]
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


@pytest.mark.parametrize("family", [family for family in CAUSAL if family != "mamba"])
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


def test_what_takes_no_mask_reads_prompts_of_one_length(llama):
    model = from_huggingface(llama)
    model._takes = model._takes - {"attention_mask"}
    model.start([[5, 6], [7, 8]])
    with pytest.raises(ValueError, match=r"takes no attention mask.*batch_size=1"):
        model.start([[5, 6], [7]])
