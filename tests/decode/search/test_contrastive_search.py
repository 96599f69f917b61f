import math
from dataclasses import dataclass

import pytest
import torch

import unspool as us
from unspool.decode.combine import Contrast, EarlyExit, Ensemble
from unspool.decode.generate import generate, stream
from unspool.decode.search import Greedy
from unspool.decode.search.contrastive_search import ContrastiveSearch, SeenVectors
from unspool.interfaces import Abilities, Step
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableState, random_table

PROMPTS = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10], [1, 2]]


def tiny(seed, layers=2):
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=17,
        width=16,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_width=4,
        inner_width=24,
        context=40,
    )
    return TransformerLM(config).eval()


MODEL = tiny(0)


@dataclass(frozen=True)
class Compass(Abilities):
    """Fixed probabilities; a token's hidden vector is its own direction."""

    p: tuple[float, ...]
    directions: tuple[tuple[float, float], ...]
    context: None = None
    tokenizer: None = None

    @property
    def vocab_size(self):
        return len(self.p)

    def start(self, prompts):
        return self._said(TableState(tuple(map(tuple, prompts))))

    def step(self, state, tokens_N):
        rows = zip(state.rows, tokens_N.tolist(), strict=True)
        return self._said(TableState(tuple((*row, token) for row, token in rows)))

    def _said(self, state):
        logp_NV = torch.tensor(self.p).log().expand(len(state.rows), -1)
        return Step(logp_NV, torch.tensor([self.directions[row[-1]] for row in state.rows])), state


def test_by_hand():
    model = Compass((0.5, 0.4, 0.1), ((2.0, 0.0), (0.0, 5.0), (-1.0, 0.0)))
    out = generate(model, [0], ContrastiveSearch(k=2, alpha=0.6), max_new_tokens=3)
    # after 0:     0 → 0.4·0.5 − 0.6·1 = −0.4    1 → 0.4·0.4 − 0.6·0 = 0.16
    # after 0 1:   0 → −0.4                      1 → 0.16 − 0.6 = −0.44
    assert out.tokens == (1, 0, 0)
    assert out.stats["values"] == pytest.approx([0.16, -0.4, -0.4])
    assert out.scores == out.logps
    assert out.logps == pytest.approx([math.log(0.4), math.log(0.5), math.log(0.5)])
    # the third token points away from everything but is not among the two most probable
    wider = generate(model, [0], ContrastiveSearch(k=3, alpha=0.6), max_new_tokens=1)
    assert wider.tokens == (2,)
    assert wider.stats["values"] == pytest.approx([0.4 * 0.1 + 0.6])


def test_the_whole_prompt_counts():
    model = Compass((0.5, 0.4, 0.1), ((1.0, 0.0), (0.0, 1.0), (0.0, -1.0)))
    assert generate(model, [0], ContrastiveSearch(2), max_new_tokens=1).tokens == (1,)
    assert generate(model, [1, 0], ContrastiveSearch(2), max_new_tokens=1).tokens == (0,)


def test_a_token_of_no_probability_is_no_candidate():
    model = Compass((0.5, 0.0, 0.5), ((1.0, 0.0), (-1.0, 0.0), (1.0, 0.0)))
    out = generate(model, [0], ContrastiveSearch(k=3), max_new_tokens=2)
    assert out.tokens == (0, 0)


def brute_force(model, prompt, k, alpha, new):
    """The paper's equation, by a whole pass over every candidate's whole sequence."""
    row, values = list(prompt), []
    for _ in range(new):
        with torch.no_grad():
            p_V = model(torch.tensor([row]))[0, -1].exp()
            best = None
            for token in p_V.topk(k).indices.tolist():
                hidden_TD = model.hidden(torch.tensor([[*row, token]]))[0]
                likeness = max(
                    torch.cosine_similarity(hidden_TD[-1], h, dim=0).item() for h in hidden_TD[:-1]
                )
                value = (1 - alpha) * p_V[token].item() - alpha * likeness
                if best is None or value > best[0]:
                    best = value, token
        values.append(best[0])
        row.append(best[1])
    return tuple(row[len(prompt) :]), values


@pytest.mark.parametrize(("k", "alpha"), [(4, 0.6), (3, 0.3), (17, 1.0), (50, 0.8)])
def test_it_is_the_brute_force_search_in_batches_of_any_lengths(k, alpha):
    outs = generate(MODEL, PROMPTS, ContrastiveSearch(k, alpha), max_new_tokens=10)
    for prompt, out in zip(PROMPTS, outs, strict=True):
        tokens, values = brute_force(MODEL, prompt, min(k, 17), alpha, 10)
        assert out.tokens == tokens
        assert out.stats["values"] == pytest.approx(values, abs=1e-4)
        assert generate(MODEL, prompt, ContrastiveSearch(k, alpha), max_new_tokens=10).tokens == tokens


def test_alpha_zero_and_k_one_are_greedy():
    greedy = [out.tokens for out in generate(MODEL, PROMPTS, Greedy(), max_new_tokens=12)]
    for decoder in (ContrastiveSearch(k=5, alpha=0.0), ContrastiveSearch(k=1, alpha=0.9)):
        assert [out.tokens for out in generate(MODEL, PROMPTS, decoder, max_new_tokens=12)] == greedy


def test_rows_that_end_at_the_context_leave_the_others_alone():
    prompts = [[1] * 38, [2, 3], [4] * 36]
    outs = generate(MODEL, prompts, ContrastiveSearch(), max_new_tokens=6)
    assert [len(out.tokens) for out in outs] == [2, 6, 4]
    for prompt, out in zip(prompts, outs, strict=True):
        assert out.tokens == brute_force(MODEL, prompt, 4, 0.6, len(out.tokens))[0]


@dataclass(frozen=True)
class StartAndStep(Abilities):
    """A model with nothing but start and step."""

    inner: TransformerLM
    vocab_size: int = 17
    context: int = 40
    tokenizer: None = None

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        return self.inner.step(state, tokens_N)


def test_a_model_that_cannot_read_is_given_the_prompt_token_by_token():
    bare = StartAndStep(MODEL)
    assert MODEL.prompt_reading is MODEL
    assert bare.prompt_reading is None
    want = [out.tokens for out in generate(MODEL, PROMPTS, ContrastiveSearch(), max_new_tokens=8)]
    assert [out.tokens for out in generate(bare, PROMPTS, ContrastiveSearch(), max_new_tokens=8)] == want


def test_it_runs_on_combined_models():
    for model in (Contrast(MODEL, tiny(1)), EarlyExit(tiny(2, layers=4))):
        together = generate(model, PROMPTS, ContrastiveSearch(), max_new_tokens=6)
        alone = [generate(model, prompt, ContrastiveSearch(), max_new_tokens=6) for prompt in PROMPTS]
        assert [out.tokens for out in together] == [out.tokens for out in alone]
        for out in together:
            assert min(out.logps) > -math.inf


def test_n_answers_are_the_same_answer_and_the_stream_shows_it():
    three = generate(MODEL, PROMPTS[0], ContrastiveSearch(), max_new_tokens=6, n=3)
    assert len({out.tokens for out in three}) == 1
    pieces = list(stream(MODEL, PROMPTS[0], ContrastiveSearch(), max_new_tokens=6))
    assert [len(piece.tokens) for piece in pieces] == [1] * 6
    assert sum((piece.tokens for piece in pieces), ()) == three[0].tokens


def test_likeness_looks_at_real_places_only():
    seen = SeenVectors.of([torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 1.0]])])
    east = torch.tensor([[[4.0, 0.0]], [[4.0, 0.0]]])
    assert seen.similarity(east).tolist() == [[1.0], [0.0]]
    assert seen.append(torch.tensor([[0.0, 1.0], [7.0, 0.0]])).similarity(east).tolist() == [[1.0], [1.0]]
    assert seen.select(torch.tensor([1])).similarity(east[:1]).tolist() == [[0.0]]


def test_models_without_hidden_vectors_are_refused():
    table = random_table(5, seed=0)
    for model, name in ((table, "TableModel"), (Ensemble((MODEL, MODEL)), "Ensemble")):
        with pytest.raises(TypeError, match=f"hidden states, which a {name} does not return"):
            generate(model, [1, 2], ContrastiveSearch())


@pytest.mark.parametrize("options", [{"k": 0}, {"alpha": -0.1}, {"alpha": 1.5}, {"alpha": float("nan")}])
def test_values_out_of_range_are_refused_by_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ContrastiveSearch(**options)


def test_repr_is_the_call():
    assert repr(ContrastiveSearch(5, 0.4)) == "ContrastiveSearch(k=5, alpha=0.4)"
    assert ContrastiveSearch().streams


def test_of_an_encoder_decoder_its_own_side_is_compared():
    model = us.load("dates")
    dates = ["the 5th of May, 1921", "Friday, July 4th, 2025"]
    outs = us.generate(model, dates, ContrastiveSearch(4, 0.0), max_new_tokens=12)
    assert [out.tokens for out in outs] == [
        out.tokens for out in us.generate(model, dates, us.Greedy(), max_new_tokens=12)
    ]
    for decoder in (ContrastiveSearch(4, 0.6), ContrastiveSearch(3, 0.3)):
        outs = us.generate(model, dates, decoder, max_new_tokens=12)
        for date, out in zip(dates, outs, strict=True):
            assert us.generate(model, date, decoder, max_new_tokens=12).tokens == out.tokens
            assert out.tokens == by_steps(model, date, decoder.k, decoder.alpha, 12)


def by_steps(model, source, k, alpha, limit):
    """The same by the equation, with the decoder run anew for every candidate."""
    source = model.tokenizer.encode(source)

    def read(tokens):
        step, state = model.start([source])
        steps = [step]
        for token in tokens:
            step, state = model.step(state, torch.tensor([token]))
            steps.append(step)
        return steps

    row = []
    while len(row) < limit and not (row and row[-1] in model.tokenizer.eos_ids):
        p_V = read(row)[-1].logp_NV[0].exp()
        values = {}
        for token in p_V.topk(k).indices.tolist():
            *before, now = [step.hidden_ND[0] for step in read([*row, token])]
            likeness = max(torch.cosine_similarity(now, h, dim=0).item() for h in before)
            values[token] = (1 - alpha) * p_V[token].item() - alpha * likeness
        row.append(max(sorted(values), key=values.get))
    return tuple(row)


def test_a_contrast_of_encoder_decoders_reads_no_source_as_output():
    model = us.load("dates")
    both = us.Contrast(model, model, alpha=0.5, weight=0.0)
    date = "the 5th of May, 1921"
    decoder = ContrastiveSearch(4, 0.6)
    assert (
        us.generate(both, date, ContrastiveSearch(4, 0.0)).tokens
        == us.generate(model, date, us.Greedy()).tokens
    )
    assert us.generate(both, date, decoder).finish_reason == "eos"
    with pytest.raises(ValueError, match="combine models of one kind"):
        us.Contrast(model, us.models.TransformerLM(replace_vocabulary(model)))


def replace_vocabulary(model):
    return us.models.TransformerConfig(
        vocab_size=model.vocab_size,
        width=8,
        layers=1,
        heads=2,
        kv_heads=2,
        head_width=4,
        inner_width=8,
        context=64,
    )


def test_alternatives_are_the_models():
    out = generate(MODEL, PROMPTS[0], ContrastiveSearch(4), max_new_tokens=3, alternatives=5)
    assert len(out.ranked) == 3
    for ranked, logp, token in zip(out.ranked, out.logps, out.tokens, strict=True):
        assert dict(ranked.model)[token] == pytest.approx(logp)
        assert ranked.model == ranked.drawn
