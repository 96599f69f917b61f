import math

import pytest
import torch
from scipy.stats import chisquare
from transformers.generation.logits_process import UnbatchedClassifierFreeGuidanceLogitsProcessor

import unspool as us
from unspool.decode.combine import Guidance, Reprompted
from unspool.evaluate import perplexity
from unspool.models.transformer_lm import TransformerConfig
from unspool.testing import TableModel, random_table

P = {0: (0.6, 0.3, 0.1), 1: (0.2, 0.2, 0.6), 2: (1.0, 0.0, 0.0)}
FIRST = TableModel(lambda row: P[row[0]])
"""It looks at the first token of the prompt alone."""


def p_of(model, prompt):
    return model.start([prompt])[0].logp_NV[0].exp().tolist()


def test_by_hand():
    # (0.6, 0.3, 0.1)² / (0.2, 0.2, 0.6) = 1.8, 0.45, 0.01667, over their sum 2.26667.
    assert p_of(Guidance(FIRST, 2.0), [0, 1]) == pytest.approx([0.79412, 0.19853, 0.00735], abs=1e-5)
    assert p_of(Guidance(FIRST, 2.0, [1, 1]), [0, 2]) == pytest.approx([0.79412, 0.19853, 0.00735], abs=1e-5)


def test_one_is_the_model_and_nought_the_other_prompt():
    assert p_of(Guidance(FIRST, 1.0), [0, 1]) == pytest.approx(P[0])
    assert p_of(Guidance(FIRST, 0.0), [0, 1]) == pytest.approx(P[1])


def test_tokens_of_probability_zero_stay_impossible():
    # By the prompt: it stays so. By the other: it has a finite score.
    assert p_of(Guidance(FIRST, 1.5), [2, 0]) == pytest.approx([1.0, 0.0, 0.0])
    assert all(math.isfinite(p) for p in p_of(Guidance(FIRST, 1.5), [0, 2]))


def test_the_distribution_is_that_of_hugging_face():
    scores = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    table = {0: scores[0, 0].exp().tolist(), 1: scores[1, 0].exp().tolist()}
    ours = Guidance(TableModel(lambda row: table[row[0]]), 1.7).start([[0, 1]])[0].logp_NV
    theirs = UnbatchedClassifierFreeGuidanceLogitsProcessor(1.7, model=None)
    theirs.get_unconditional_logits = lambda ids: scores[1, :1][:, None]
    expected = theirs(torch.tensor([[0, 1]]), scores[0, :1]).log_softmax(-1)
    assert torch.allclose(ours, expected, atol=1e-5)


def test_samples_follow_the_equation():
    outs = us.generate(Guidance(FIRST, 2.0), [0, 1], us.Sample(), max_new_tokens=1, n=3000, seed=1)
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in outs]), minlength=3)
    expected = torch.tensor([1.8, 0.45, 1 / 60]).double()
    assert chisquare(counts.numpy(), (3000 * expected / expected.sum()).numpy()).pvalue > 1e-3


def test_every_search_runs_on_it_alone_and_in_a_batch():
    model = Guidance(random_table(9, 0), 2.0)
    prompts = [[1, 2, 3], [4], [5, 6]]
    draft = random_table(9, 1)
    for decoder in (us.Greedy(), us.Sample(), us.Beam(3), us.Speculative(draft, length=2)):
        together = us.generate(model, prompts, decoder, max_new_tokens=6, seed=3)
        alone = [us.generate(model, prompt, decoder, max_new_tokens=6, seed=3) for prompt in prompts]
        assert [out.tokens for out in together] == [out.tokens for out in alone]


def test_a_reprompted_model_reads_something_else():
    assert p_of(Reprompted(FIRST, (1,)), [0, 0]) == pytest.approx(P[1])
    assert p_of(Reprompted(FIRST, None), [0, 1]) == pytest.approx(P[1])
    assert Reprompted(FIRST, None).rewindable is not None


def test_what_cannot_be_guided_is_refused():
    with pytest.raises(ValueError, match=r"Guidance\.weight is -1"):
        Guidance(FIRST, -1)
    with pytest.raises(ValueError, match="outside the model's vocabulary"):
        Guidance(FIRST, 1.5, [7])
    with pytest.raises(ValueError, match="has no tokenizer"):
        Guidance(FIRST, 1.5, "no")
    with pytest.raises(ValueError, match="needs a negative source"):
        Guidance(us.load("dates"))


def learned(context=12):
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=9, width=8, layers=1, heads=2, kv_heads=2, head_width=4, inner_width=8, context=context,
        positions="learned",
    )  # fmt: skip
    return shape.build().eval()


LONG = [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "decoder", [us.Greedy(), us.Sample(), us.Beam(2), us.Speculative(learned(100), length=2)]
)
def test_a_text_ends_where_the_negative_prompt_has_filled_its_context(decoder):
    model = learned()
    out = us.generate(Guidance(model, 1.5, LONG), [1], decoder, max_new_tokens=30, seed=0)
    assert len(out.tokens) == 12 - len(LONG)
    assert out.finish_reason == "length"
    assert len(us.generate(Guidance(model), [1], decoder, max_new_tokens=30, seed=0).tokens) == 11


def test_a_combination_counts_the_context_of_every_part():
    guided = Guidance(learned(), 1.5, LONG)
    for model in (
        us.Ensemble([guided, learned(100)]),
        us.Ensemble([learned(100), guided]),
        us.Contrast(learned(100), guided),
        Guidance(guided, 1.5, [1, 2]),
    ):
        assert len(us.generate(model, [1], us.Greedy(), max_new_tokens=30).tokens) == 12 - len(LONG)
    wide = us.Ensemble([Guidance(learned(100), 1.5, LONG * 3), learned()])  # 21 of 100, and 1 of 12
    assert len(us.generate(wide, [1], us.Greedy(), max_new_tokens=30).tokens) == 11


def test_a_negative_prompt_that_fills_the_context_is_refused_before_decoding():
    model = Guidance(learned(), 1.5, [1] * 12)
    with pytest.raises(ValueError, match="the negative prompt of prompt 0 fills the context"):
        us.generate(model, [1], us.Greedy())
    with pytest.raises(ValueError, match="prompt 0 has 12 tokens"):
        us.generate(model, [1] * 12, us.Greedy())


def test_scores_count_the_negative_prompt():
    model = Guidance(learned(), 1.5, LONG)
    assert len(us.score(model, [1], [1] * 5).logps) == 5
    with pytest.raises(ValueError, match=r"text 0 has 6 tokens but the context leaves 5"):
        us.score(model, [1], [1] * 6)
    with pytest.raises(ValueError, match="the context leaves 0"):
        us.score(Guidance(learned(), 1.5, [1] * 14), [1], [1])


def test_perplexity_is_measured_in_windows_that_leave_room_for_the_negative_prompt():
    text = [1 + it % 8 for it in range(40)]
    guided = Guidance(learned(), 1.5, LONG)
    found = perplexity(guided, [text])
    assert math.isfinite(found.value)
    with pytest.raises(ValueError, match="the negative prompt fills the context"):
        perplexity(Guidance(learned(), 1.5, [1] * 12), [text])
