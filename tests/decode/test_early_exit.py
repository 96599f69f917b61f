import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.combine import EarlyExit, divergence, high, low
from unspool.decode.generate import generate
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.beam import Beam
from unspool.integrations.huggingface.loading import to_huggingface
from unspool.interfaces import Abilities, Step
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableState, random_table

INF = float("inf")
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]


@dataclass(frozen=True)
class Storeys(Abilities):
    """A model of fixed distributions, one for each depth; the last is its own."""

    p: tuple[tuple[float, ...], ...]
    shown: tuple[int, ...] = ()
    context: None = None
    tokenizer: None = None

    @property
    def vocab_size(self):
        return len(self.p[0])

    @property
    def layered(self):
        return self

    @property
    def layers(self):
        return len(self.p) - 1

    def exits(self, layers):
        return Storeys(self.p, tuple(layers))

    def start(self, prompts):
        return self._said(TableState(tuple(map(tuple, prompts))))

    def step(self, state, tokens_N):
        return self._said(state)

    def _said(self, state):
        logp = torch.tensor(self.p).log()
        rows = len(state.rows)
        return Step(logp[-1].expand(rows, -1), exits_NEV=logp[list(self.shown)].expand(rows, -1, -1)), state


def tiny(layers, tied=True):
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=19,
        width=16,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_width=4,
        inner_width=24,
        context=48,
        tied=tied,
    )
    model = TransformerLM(config).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.out.weight.mul_(3)  # every block must matter
    return model


def test_by_hand_with_one_layer():
    # 0.6/0.7, 0.3/0.1, and 0.05 < 0.1 · 0.6 twice
    model = EarlyExit(Storeys(((0.25,) * 4, (0.7, 0.1, 0.1, 0.1), (0.6, 0.3, 0.05, 0.05))), layers=(1,))
    step, _ = model.start([[0]])
    assert step.logp_NV[0].exp().tolist() == pytest.approx([0.2222222, 0.7777778, 0.0, 0.0], abs=1e-6)
    assert step.score_NV is None


def test_the_layer_that_differs_most_is_chosen():
    last, near, far = (0.6, 0.3, 0.1), (0.5, 0.35, 0.15), (0.1, 0.3, 0.6)
    model = EarlyExit(Storeys((near, far, near, last)), layers=(0, 1, 2), alpha=0.0)
    static = EarlyExit(model.model, layers=(1,), alpha=0.0)
    torch.testing.assert_close(model.start([[0]])[0].logp_NV, static.start([[0]])[0].logp_NV)


def test_divergence_by_hand():
    p, q = torch.tensor([1.0, 0.0]).log(), torch.tensor([0.0, 1.0]).log()
    assert divergence(p, q).item() == pytest.approx(math.log(2))
    assert divergence(p, p).item() == 0
    # m = (0.75, 0.25): ½ log 1/0.75 + ½ (½ log ½/0.75 + ½ log ½/0.25)
    half = torch.tensor([0.5, 0.5]).log()
    assert divergence(p, half).item() == pytest.approx(0.2157616, abs=1e-6)


rows = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda row: sum(row) > 1e-3)


@given(rows, rows)
def test_divergence_is_symmetric_and_between_zero_and_log_two(p, q):
    p, q = ((torch.tensor(row) / sum(row)).log() for row in (p, q))
    assert divergence(p, q).item() == pytest.approx(divergence(q, p).item(), abs=1e-6)
    assert -1e-6 <= divergence(p, q).item() <= math.log(2) + 1e-6


@pytest.mark.parametrize(
    ("depth", "lower", "upper"),
    [
        (1, (0,), (0,)),
        (2, (1,), (1,)),
        (3, (2,), (1,)),
        (5, (2,), (2, 4)),
        (8, (2,), (4, 6)),
        (12, (2, 4), (6, 8, 10)),
        (32, tuple(range(2, 16, 2)), tuple(range(16, 32, 2))),
        (80, tuple(range(2, 20, 2)), tuple(range(60, 80, 2))),
    ],
)
def test_buckets(depth, lower, upper):
    assert (low(depth), high(depth)) == (lower, upper)


def dola_by_hand(twin, row, candidates, alpha=0.1):
    """log p̂ after a row from Hugging Face's hidden states, in probabilities and loops over layers."""
    with torch.no_grad():
        out = twin(torch.tensor([row]), output_hidden_states=True)
        final = out.logits[0, -1].double().softmax(-1)
        early = []
        for layer in candidates:
            hidden = out.hidden_states[layer][0, -1]
            early.append(twin.lm_head(twin.model.norm(hidden)).double().softmax(-1))
    distances = []
    for q in early:
        m = (final + q) / 2
        distances.append(((final * (final / m).log()).sum() + (q * (q / m).log()).sum()) / 2)
    base = early[int(torch.stack(distances).argmax())]
    ratio = torch.where(final >= alpha * final.max(), final / base, 0.0)
    return (ratio / ratio.sum()).log(), int(torch.stack(distances).argmax())


@pytest.mark.parametrize(
    ("tied", "layers", "candidates"),
    [(True, "high", (3, 5)), (False, (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)), (True, (3,), (3,))],
)
def test_it_is_dola_on_hugging_faces_hidden_states(tied, layers, candidates):
    inner = tiny(6, tied)
    model, twin = EarlyExit(inner, layers), to_huggingface(inner)
    assert model.candidates == candidates
    chosen = set()
    outs = generate(model, PROMPTS, Greedy(), max_new_tokens=10)
    for prompt, out in zip(PROMPTS, outs, strict=True):
        row = list(prompt)
        for token, logp in zip(out.tokens, out.logps, strict=True):
            want, place = dola_by_hand(twin, row, candidates)
            assert token == want.argmax().item()
            assert logp == pytest.approx(want.max().item(), abs=1e-4)
            chosen.add(place)
            row.append(token)
    assert len(chosen) > 1 or len(candidates) == 1


def test_samples_are_independent_of_their_company():
    model = EarlyExit(tiny(6))
    together = generate(model, PROMPTS, Sample(), max_new_tokens=8, n=2, seed=5)
    for prompt, group in zip(PROMPTS, together, strict=True):
        alone = generate(model, prompt, Sample(), max_new_tokens=8, n=2, seed=5)
        assert [out.tokens for out in alone] == [out.tokens for out in group]


def test_a_beam_of_one_is_greedy():
    model = EarlyExit(tiny(6))
    greedy, beam = (generate(model, PROMPTS, decoder, max_new_tokens=8) for decoder in (Greedy(), Beam(1)))
    assert [out.tokens for out in beam] == [out.tokens for out in greedy]


def test_face_equality_and_repr():
    inner = tiny(4)
    model = EarlyExit(inner, layers=[1, 2])
    assert (model.vocab_size, model.context, model.tokenizer) == (19, 48, None)
    assert model == EarlyExit(inner, (1, 2)) != EarlyExit(inner)
    storeys = Storeys(((0.5, 0.5),) * 3)
    assert repr(EarlyExit(storeys, (1,))) == f"EarlyExit(model={storeys!r}, layers=(1,), alpha=0.1)"


def test_what_cannot_exit_is_refused():
    with pytest.raises(TypeError, match="TableModel does not return predictions"):
        EarlyExit(random_table(5, seed=1))
    with pytest.raises(ValueError, match="choose from high, low"):
        EarlyExit(tiny(4), "middle")
    with pytest.raises(ValueError, match="alpha"):
        EarlyExit(tiny(4), alpha=2)
    with pytest.raises(ValueError, match="layer 4"):
        EarlyExit(tiny(4), (4,))


def test_a_token_without_probability_stays_out():
    model = EarlyExit(Storeys(((0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0))), (0, 1), alpha=0.0)
    p = model.start([[0]])[0].logp_NV[0].exp()
    assert p[2] == 0
    assert p.sum().item() == pytest.approx(1.0)
