import pytest
import torch

import unspool as us
from unspool.tokenization.vocabulary import train_characters


@pytest.mark.parametrize("wrong", ["gpt2", None, 3, torch.nn.Linear(2, 2)])
def test_what_is_no_model_of_transformers_is_refused(wrong):
    with pytest.raises(TypeError, match="no model of transformers that generates"):
        us.from_huggingface(wrong)


def test_a_tokenizer_of_another_model_is_refused(llama):
    large = train_characters([chr(code) for code in range(65, 165)])
    with pytest.raises(ValueError, match=r"knows \d+ tokens, the model only 40: it belongs to another model"):
        us.from_huggingface(llama, large)


def test_a_text_of_ours_serves_as_well(llama):
    text = train_characters(["abcdef. "])
    model = us.from_huggingface(llama, text)
    out = us.generate(
        model, "fade", us.Greedy(us.LogitBias(dict.fromkeys(range(13, 40), -99.0))), max_new_tokens=4
    )
    assert model.tokenizer is text
    assert out.text


def test_there_and_back_nothing_is_lost():
    torch.manual_seed(0)
    ours = us.models.TransformerConfig(
        vocab_size=30, width=16, layers=2, heads=4, kv_heads=2, inner_width=24, context=64
    ).build()
    back = us.from_huggingface(us.to_huggingface(ours))
    tokens = torch.randint(0, 30, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(back(tokens), ours.eval()(tokens), atol=1e-5, rtol=1e-5)
    for search in (us.Greedy(), us.Beam(3), us.Sample(us.TopP(0.9))):
        asked = {"max_new_tokens": 9, "seed": 3}
        want, found = (us.generate(model, [[3, 4], [5]], search, **asked) for model in (ours, back))
        assert [out.tokens for out in found] == [out.tokens for out in want]
