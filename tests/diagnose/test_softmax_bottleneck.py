import math
from functools import cache
from random import Random

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.known_language import TrueModel
from unspool.diagnose.overestimation import failures, underestimation
from unspool.diagnose.softmax_bottleneck import (
    bottleneck,
    first_positions,
    fitting_contexts,
    least_error,
    log_probabilities,
    measure,
    own_pairs,
    own_text,
    rank_limit,
    smoothed,
    spectrum,
)
from unspool.evaluate.teacher_forcing import Window, paired, read, windows
from unspool.heads import HEADS
from unspool.heads.kerbs import Kerbs
from unspool.heads.softmax import BilinearHeadConfig, Softmax, SoftmaxHeadConfig, TemperedHeadConfig
from unspool.models.rnn_models import RNNConfig, RNNSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.testing import bigram
from unspool.training import train


def test_a_diagonal_by_hand():
    """Singular values 3, 2 and 0; entries as small as −3."""
    found = spectrum(torch.tensor([[-3.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found.singular_values == pytest.approx((3.0, 2.0, 0.0))
    assert (found.rank, found.limit, found.delta) == (2, None, 3.0)
    assert found.tau == pytest.approx(1 - math.exp(-3.0))
    assert found.uniform_delta == pytest.approx(math.log(3))


def test_softmax_is_bound_by_its_width_and_kerbs_is_not():
    torch.manual_seed(0)
    hidden = torch.randn(40, 5)
    softmax, kerbs = Softmax(5, 30), Kerbs(5, torch.arange(30), 30)
    torch.nn.init.normal_(kerbs.theta_S, std=3.0)
    with torch.no_grad():
        bound, free = spectrum(softmax(hidden), softmax.weight, 5 + 1), spectrum(kerbs(hidden))
    assert (bound.rank, bound.limit) == (6, 6)
    assert bound.conclusive
    assert len(bound.weight_singular_values) == 5
    assert free.rank > 15


def test_too_few_contexts_tell_nothing():
    head = Softmax(5, 30)
    with torch.no_grad():
        assert not spectrum(head(torch.randn(6, 5)), head.weight, 5 + 1).conclusive
        assert spectrum(head(torch.randn(7, 5)), head.weight, 5 + 1).conclusive


def test_repeated_contexts_tell_no_more_than_one():
    head = Softmax(5, 30)
    with torch.no_grad():
        logp = head(torch.randn(6, 5)).repeat(20, 1)
    rounded = logp + 1e-7 * torch.randn(120, 30)  # as a product of another shape might say it
    for rows in (logp, rounded):
        found = spectrum(rows, head.weight, 5 + 1)
        assert (found.contexts, found.distinct, found.conclusive) == (120, 6, False)
        assert not spectrum(rows).conclusive
    other = spectrum(torch.cat([logp, logp[:1] + 1e-3]), head.weight, 5 + 1)
    assert (other.contexts, other.distinct, other.conclusive) == (121, 7, True)


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 12), st.integers(1, 9))
def test_the_singular_values_are_those_of_the_whole_matrix(seed, contexts, words):
    logp = torch.randn(contexts, words, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)
    found = spectrum(logp)
    assert found.singular_values == pytest.approx(torch.linalg.svdvals(logp.double()).tolist(), abs=1e-12)
    assert found.rank <= found.distinct <= contexts or words == 1


def test_full_rank_differs_from_too_few_contexts():
    dice = torch.Generator().manual_seed(0)
    assert spectrum(torch.randn(9, 4, generator=dice)).conclusive
    assert not spectrum(torch.randn(3, 4, generator=dice)).conclusive


def test_no_matrix_of_lower_rank_has_a_smaller_error():
    torch.manual_seed(0)
    true = torch.randn(12, 9, dtype=torch.float64)
    assert least_error(torch.diag(torch.tensor([5.0, 4.0, 3.0])), 1) == pytest.approx(5.0)
    for rank in (0, 1, 4):
        u, s, v = torch.linalg.svd(true, full_matrices=False)
        best = (u[:, :rank] * s[:rank]) @ v[:rank]
        assert least_error(true, rank) == pytest.approx((true - best).norm().item())
        other = torch.randn(12, rank, dtype=torch.float64) @ torch.randn(rank, 9, dtype=torch.float64)
        assert (true - other).norm().item() >= least_error(true, rank)
    assert least_error(true, 9) == 0.0


def test_a_model_is_measured_on_the_places_of_a_text():
    rows = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    found = bottleneck(bigram(rows), [[0, 1, 2, 0, 1, 2, 0]], contexts=5)
    assert (found.contexts, found.vocab_size, found.rank) == (5, 3, 3)
    assert found.delta == pytest.approx(-math.log(0.1))
    found = bottleneck(bigram([[0.5, 0.25, 0.25]] * 3), [[0, 1, 2, 0, 1, 2, 0]])
    assert (found.contexts, found.rank) == (6, 1)


def test_infinite_numbers_raise():
    endless = torch.tensor([[0.0, -torch.inf]])
    with pytest.raises(ValueError, match="before any truncation"):
        spectrum(endless)
    with pytest.raises(ValueError, match="smooth them first"):
        least_error(endless, 1)


KINDS = {
    "rnn_lm": (RNNConfig, {"cell": "gru"}),
    "transformer_lm": (
        TransformerConfig,
        {"layers": 1, "heads": 2, "kv_heads": 2, "head_width": 4, "inner_width": 16, "context": 256},
    ),
}
SETTINGS = {"senses": {"word_count": 60}, "zipf_markov": {"word_count": 60, "order": 1}}
"""Of languages that are larger by default than a test needs."""


def random_model(kind, width, head, vocab_size=60):
    torch.manual_seed(width)
    config, shape = KINDS[kind]
    return config(vocab_size=vocab_size, width=width, head=HEADS[head](), **shape).build()


@cache
def trained(language, kind="rnn_lm", width=3, head="softmax"):
    """A model that has learnt a language for some seconds."""
    return train(
        {
            "seed": 1,
            "data": {
                "kind": "language",
                "language": {"kind": language, **SETTINGS.get(language, {})},
                **{"train": 1500, "valid": 20},
            },
            "batches": {"kind": "bucketed", "tokens": 512},
            "model": {"kind": kind, "width": width, "head": {"kind": head}, **KINDS[kind][1]},
            "schedule": {"kind": "cosine", "warmup": 10},
            "train": {
                **{"updates": 80, "lr": 2e-2, "threads": 1},
                **{"validate_every": 80, "checkpoint_every": 80},
            },
        }
    )


def beside_the_truth(model, language, contexts=150):
    """log p̂ and p* in the same contexts: all places of sentences that the language says."""
    dice, rows = Random(7), []
    while sum(map(len, rows)) < 2 * contexts:
        rows.append((language.bos, *language.sample(dice), language.eos))
    parts = windows(rows)
    logp, true = (torch.cat([it.logp_MV for it in read(by, parts)]) for by in (model, TrueModel(language)))
    return logp[:contexts].double(), true[:contexts].double().exp()


@pytest.mark.parametrize("width", [2, 6, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_random_models_reach_the_limit_and_never_exceed_it(kind, width):
    found = bottleneck(random_model(kind, width, "softmax"), [_noise(60, 200)])
    assert found.conclusive
    assert (found.rank, found.limit) == (width + 1, width + 1)


BIASED = {
    "softmax": (SoftmaxHeadConfig(bias=True), 8 + 2),
    "tied": (SoftmaxHeadConfig(tied=True, bias=True), 8 + 2),
    "tempered": (TemperedHeadConfig(bias=True), 8 + 2),
    "bilinear": (BilinearHeadConfig(bias=True), 8 + 2),
    "narrow": (BilinearHeadConfig(inner_width=5), 5 + 1),
    "narrow with a bias": (BilinearHeadConfig(inner_width=5, bias=True), 5 + 2),
    "wide": (BilinearHeadConfig(inner_width=11), 8 + 1),
}
"""Heads whose limit is not D + 1 for D = 8, or not for its reason."""


@pytest.mark.parametrize("head", BIASED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bias_adds_a_dimension_and_a_narrow_product_takes_some_away(kind, head):
    said, limit = BIASED[head]
    torch.manual_seed(0)
    config, shape = KINDS[kind]
    model = config(vocab_size=60, width=8, head=said, **shape).build()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    if said == BIASED["tempered"][0]:
        model.head.beta.data.fill_(0.5)
    found = bottleneck(model, [_noise(60, 200)])
    assert (found.rank, found.limit) == (limit, limit)
    assert rank_limit(model) == limit
    assert found.contexts == fitting_contexts(model) == limit + 64
    assert found.conclusive


def test_a_matrix_alone_does_not_tell_of_a_bias():
    torch.manual_seed(0)
    for bias in (False, True):
        head = SoftmaxHeadConfig(bias=bias).build(8, 60)
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        with torch.no_grad():
            found = spectrum(head(torch.randn(100, 8)), head.weight)
        assert (found.rank, found.limit) == (9 + bias, 10)


def test_the_limit_formula():
    logp, matrix = torch.randn(9, 7), torch.ones(7, 4)
    for limit, told in ((None, "D + 2 = 6"), (5, "D + 1 = 5"), (4, "4"), (3, "3")):
        assert spectrum(logp, matrix, limit).limit_formula == told
    assert spectrum(logp).limit_formula == "any rank"


@pytest.mark.parametrize("width", [2, 6, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_trained_models_never_exceed_the_limit(kind, width):
    model = trained("senses", kind, width)
    found = bottleneck(model, own_text(model, fitting_contexts(model)))
    assert found.conclusive
    assert found.rank <= found.limit == width + 1
    assert found.rank > width // 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_softmaxes_breaks_the_limit_random_and_trained(kind):
    for model in (random_model(kind, 6, "mixture"), trained("senses", kind, 6, "mixture")):
        found = bottleneck(model, [_noise(model.vocab_size, 200)], contexts=150)
        assert (found.limit, found.width) == (None, None)
        assert found.rank > 2 * (6 + 1)


@pytest.mark.parametrize("language", LANGUAGES)
def test_trained_models_respect_the_error_bound_of_their_rank(language):
    """Where p* = 0 the true matrix is smoothed with a share of one in a million: without it, it has no norm."""
    known, width = LANGUAGES[language](**SETTINGS.get(language, {})), 3
    logp, true = beside_the_truth(trained(language), known)
    assert (true == 0).any()
    matrix = smoothed(true, 1e-6)
    least = least_error(matrix, width + 1)
    assert least > 1.0  # the bound says something: the truth has more dimensions than the model
    assert (matrix - logp).norm().item() >= least
    best = torch.linalg.svd(matrix, full_matrices=False)
    near = (best.U[:, : width + 1] * best.S[: width + 1]) @ best.Vh[: width + 1]
    assert (matrix - near).norm().item() == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("language", LANGUAGES)
def test_underestimation_is_bounded_by_the_least_log_probability(language):
    """log p* − log p̂ ≤ −min log p̂, and then p̂ − p* ≤ 1 − e^(−δ): nothing above that τ is impossible."""
    known = LANGUAGES[language](**SETTINGS.get(language, {}))
    model = trained(language)
    logp, true = beside_the_truth(model, known)
    found, delta = underestimation(logp, true), spectrum(logp.float(), model.output_matrix).delta
    assert 0 < found.delta <= delta
    assert 0 < found.overestimation <= 1 - math.exp(-found.delta) <= 1 - math.exp(-delta)
    assert found.tau == pytest.approx(1 - math.exp(-found.delta))
    assert failures(logp, true, found.tau).impossible == 0
    assert (
        failures(logp, true, 1e-6).impossible > 0
    )  # overestimation: a threshold of nothing keeps falsehoods


def test_smoothing_by_hand():
    """(1 − s)·p + s/V for s = 0.2 and two words."""
    found = smoothed(torch.tensor([[1.0, 0.0]]), 0.2).exp()
    assert found[0].tolist() == pytest.approx([0.9, 0.1])
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"share is {share}"):
            smoothed(torch.tensor([[1.0, 0.0]]), share)


def test_a_model_speaks_for_itself_in_as_many_places_as_are_asked_for():
    model = bigram([[0.4, 0.3, 0.3]] * 3)
    rows = own_text(model, 200, seed=3)
    assert sum(len(row) - 1 for row in rows) >= 200
    assert own_text(model, 200, seed=3) == rows
    assert own_text(model, 200, seed=4) != rows
    texts = [tuple(row) for seed in range(3, 8) for row in own_text(model, 200, seed=seed)]
    assert len(set(texts)) == len(texts)  # neighbouring seeds share no text
    assert len({tuple(row) for row in rows}) == len(rows)


def test_a_model_of_short_texts_speaks_until_there_is_enough():
    rows = own_text(bigram([[0.3, 0.3, 0.4]] * 3, tokenizer=Ending()), 100)
    assert sum(len(row) - 1 for row in rows) >= 100
    with pytest.raises(ValueError, match="give a text to measure it on"):
        own_text(bigram([[0.0, 0.0, 1.0]] * 3, tokenizer=Ending()), 5)


class Ending:
    """Token 2 ends a text."""

    vocab_size, bos_id, eos_ids = 3, 0, frozenset({2})

    def detokenizer(self, stop=(), after=None):
        return Silent()

    def decode(self, ids):
        return ""


class Silent:
    text, finish_reason = "", None

    def push(self, token):
        return self

    def close(self):
        return ""


ANSWERING = {
    "rnn_seq2seq": RNNSeq2SeqConfig(vocab_size=40, width=8, bos=1, eos=2),
    "transformer_seq2seq": TransformerSeq2SeqConfig(
        vocab_size=40,
        width=8,
        encoder_layers=1,
        decoder_layers=1,
        heads=2,
        inner_width=12,
        context=30,
        bos=1,
        eos=2,
    ),
}


@pytest.mark.parametrize("kind", ANSWERING)
def test_an_encoder_decoder_reads_its_source_and_scores_its_target(kind):
    torch.manual_seed(0)
    model = ANSWERING[kind].build().eval()
    pairs = [([5, 6, 7, 2], [8, 9, 2]), ([3, 2], [4, 2])]
    parts = paired(model, pairs)
    assert parts == [Window(0, (5, 6, 7, 2, 8, 9, 2), 4), Window(1, (3, 2, 4, 2), 2)]
    with torch.no_grad():
        rows = [
            model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[1, *target[:-1]]]))[0]
            for source, target in pairs
        ]
    torch.testing.assert_close(log_probabilities(model, parts, 9), torch.cat(rows))
    sources, targets = zip(*pairs, strict=True)
    assert bottleneck(model, targets, 5, sources=sources) == measure(model, parts, 5)
    with pytest.raises(ValueError, match="the model is an encoder–decoder"):
        bottleneck(model, [[5, 6, 7]])


@pytest.mark.parametrize("kind", ANSWERING)
def test_an_encoder_decoder_answers_random_words(kind):
    torch.manual_seed(0)
    model = ANSWERING[kind].build().eval()
    parts = own_pairs(model, 73, seed=2)
    assert len({it.tokens[: it.first] for it in parts}) > 20
    assert own_pairs(model, 73, seed=2) == parts != own_pairs(model, 73, seed=3)
    found = measure(model, parts)
    assert (found.contexts, found.limit, found.rank) == (73, 9, 9)


def test_the_first_positions_are_read_even_if_later_windows_are_longer():
    parts = windows([[0, 1, 2], [1, 2, 0, 1, 2, 0, 1], [2, 2]])
    assert first_positions(parts, 4) == [parts[0], Window(1, (1, 2, 0), 1)]
    assert first_positions(parts, 99) == parts
    rows = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    assert sorted(log_probabilities(bigram(rows), parts, 2).exp()[:, 0].tolist()) == pytest.approx([0.1, 0.7])


def test_a_uniform_model_underestimates_by_log_v_at_most():
    found = spectrum(torch.full((3, 8), -math.log(8)))
    assert found.delta == pytest.approx(found.uniform_delta)
    assert found.rank == 1


def _noise(words, count):
    return torch.randint(words, (count,), generator=torch.Generator().manual_seed(0)).tolist()
