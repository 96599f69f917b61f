import math

import pytest
import torch

import unspool as us
from unspool.diagnose.decoding_views import (
    MAX_MAP_TOKENS,
    attention_map,
    beam_tree,
    next_token,
    view_next,
)
from unspool.evaluate.exact_support import NextTokens, next_tokens
from unspool.interfaces import Step
from unspool.models.rnn_models import RNNSeq2SeqConfig
from unspool.testing import bigram, random_table

TABLE = [[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.25] * 4]


@pytest.fixture(scope="module")
def bible():
    return us.load("bible")


def test_a_distribution_by_hand():
    seen = next_token(bigram(TABLE), [0], count=2)
    assert [(token.id, token.text, token.p) for token in seen.tokens] == [
        (0, "<0>", pytest.approx(0.5)),
        (1, "<1>", pytest.approx(0.25)),
    ]
    assert seen.entropy == pytest.approx(1.5)  # ½·1 + 2·¼·2 bits
    assert (seen.vocabulary, seen.chosen, seen.ended, seen.decoders) == (4, (), None, ())


def test_a_token_that_was_chosen_is_read():
    seen = next_token(bigram(TABLE), [0], [2], count=4)
    assert [token.id for token in seen.tokens] == [3, 2, 1, 0]
    assert [(token.id, token.p) for token in seen.chosen] == [(2, pytest.approx(0.25))]


def test_impossible_tokens_are_not_shown():
    assert [token.id for token in next_token(bigram(TABLE), [1]).tokens] == [1]


def test_it_is_what_generate_draws_from(bible):
    prompt, decoder = "And God said unto Moses,", us.Sample(us.Temperature(0.7), us.TopP(0.8))
    seen = next_token(bible, prompt, decoders=[decoder], count=10)
    out = us.generate(bible, prompt, decoder, max_new_tokens=1, seed=1, alternatives=10)
    assert [(token.id, math.log(token.p)) for token in seen.tokens] == [
        (token, pytest.approx(logp, abs=1e-5)) for token, logp in out.ranked[0].model
    ]
    (found,) = seen.decoders
    drawn = dict(out.ranked[0].drawn)
    for token, fate, q in zip(seen.tokens, found.statuses, found.probabilities, strict=True):
        assert (fate == "kept") == (drawn.get(token.id, -math.inf) > -math.inf)
        assert fate == "cut" or math.log(q) == pytest.approx(drawn[token.id], abs=1e-5)


def test_rules_look_back_at_what_was_chosen(bible):
    prompt = "And God said"
    first = next_token(bible, prompt).tokens[0].id
    seen = next_token(
        bible, prompt, [first, first], [us.Sample(us.BadWords([[first]])), us.Sample(us.Mirostat())]
    )
    assert seen.decoders[0].error is None
    shown = [token.id for token in seen.tokens]
    assert first not in shown or seen.decoders[0].statuses[shown.index(first)] == "cut"
    assert seen.decoders[1].kept >= 1


def test_the_end_of_a_text_is_told(bible):
    (end,) = bible.tokenizer.eos_ids
    assert next_token(bible, "And God said", [end]).ended == "eos"


def test_a_decoder_that_cannot_be_shown_says_why_beside_the_others(bible):
    beam, greedy = next_token(bible, "And God", decoders=[us.Beam(2), us.Greedy()]).decoders
    assert "token by token" in beam.error
    assert beam.statuses == ()
    assert greedy.kept == 1


def test_an_encoder_decoder_goes_on_with_its_answer():
    dates = us.load("dates")
    said = us.generate(dates, "May 5th, 1921", us.Greedy()).tokens
    for place in (0, 4):
        assert next_token(dates, "May 5th, 1921", said[:place]).tokens[0].id == said[place]


def test_wrong_tokens_and_full_contexts_are_refused(bible):
    with pytest.raises(ValueError, match="tokens holds token 99999"):
        next_token(bible, "And", [99999])
    with pytest.raises(ValueError, match="context of 256 tokens is full"):
        next_token(bible, [5] * 250, [5] * 6)


P = [0.5, 0.3, 0.15, 0.05]
STEP = Step(torch.tensor([P]).log())


def fates(search, tokens=(0, 1, 2, 3)):
    return view_next(NextTokens(search.transforms, search.pick), STEP, [None], tokens)


def test_a_truncation_by_hand():
    found = fates(us.Sample(us.TopP(0.75)))
    assert found.statuses == ("kept", "kept", "cut", "cut")
    assert found.probabilities == pytest.approx((0.625, 0.375, 0, 0))
    assert (found.kept, found.mass) == (2, pytest.approx(0.8))


def test_the_best_token_alone_is_kept_by_a_search_for_it():
    for search in (us.Greedy(), us.Sample(us.ArgMax())):
        found = fates(search, [1, 0])
        assert (found.statuses, found.probabilities, found.kept) == (("cut", "kept"), (0, 1), 1)
        assert found.mass == pytest.approx(0.5)


@pytest.mark.parametrize("rule", [us.TopK(2), us.MinP(0.2), us.Typical(0.6), us.Temperature(2.0)])
def test_what_is_kept_are_the_survivors(rule):
    kept = [fate == "kept" for fate in fates(us.Sample(rule)).statuses]
    assert kept == us.survivors(rule, STEP.logp_NV[0]).tolist()


def test_a_search_of_whole_texts_is_refused():
    with pytest.raises(TypeError, match=r"Beam\(3\) does not choose token by token.*Sample or a Greedy"):
        next_tokens(us.Beam(3), None, None)


def basis_aware(pick, logp_1V, W_VD, rules=()):
    known = type("Known", (), {"output_matrix": W_VD})()
    bound = pick.bind(known, rules)
    step = Step(logp_1V)
    return bound, view_next(NextTokens(rules, bound), step, [None], range(len(W_VD)))


def test_basis_aware_says_what_was_proved_below_the_threshold():
    torch.manual_seed(0)
    W_VD, p_V = torch.randn(40, 8), torch.softmax(2 * torch.randn(40), 0)
    bound, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], W_VD)
    step = bound.test.step(p_V.double())
    for token, fate in enumerate(found.statuses):
        if p_V[token] >= 0.1:
            assert fate == "kept"
        else:
            assert fate == ("proved" if step.accepts(token, tau=0.1) else "cut")
    assert {"kept", "proved", "cut"} <= set(found.statuses)
    kept = [fate != "cut" for fate in found.statuses]
    assert found.mass == pytest.approx(float(p_V[kept].sum()), rel=1e-5)
    assert (found.kept, found.threshold) == (None, 0.1)


def test_what_a_rule_has_cut_needs_no_proof():
    torch.manual_seed(0)
    W_VD, p_V = torch.randn(40, 8), torch.softmax(2 * torch.randn(40), 0)
    _, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], W_VD, (us.TopK(3),))
    assert sum(fate != "cut" for fate in found.statuses) <= 3


def test_tests_end_when_their_time_is_over(monkeypatch):
    monkeypatch.setattr("unspool.diagnose.decoding_views.TEST_SECONDS", -1.0)
    torch.manual_seed(0)
    p_V = torch.softmax(2 * torch.randn(40), 0)
    _, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], torch.randn(40, 8))
    assert set(found.statuses) == {"kept", "undecided"}
    assert math.isclose(found.mass, float(p_V[p_V >= 0.1].sum()), rel_tol=1e-5)


@pytest.fixture(scope="module")
def bible_of_beam_tree():
    return us.load("bible")


def said(tree, node):
    return () if node < 0 else (*said(tree, tree.nodes[node].parent), tree.nodes[node].token)


def test_a_beam_of_one_is_a_line():
    tree = beam_tree(random_table(5, seed=1), [1], us.Beam(1), 4)
    assert [node.parent for node in tree.nodes] == [-1, 0, 1, 2]
    assert [node.status for node in tree.nodes] == ["grown"] * 3 + ["length"]
    assert [text.node for text in tree.texts] == [3]


def test_texts_stand_in_the_tree(bible_of_beam_tree):
    prompt, search = "And God said unto Moses,", us.Beam(4, length_penalty=us.GNMT(0.6))
    tree = beam_tree(bible_of_beam_tree, prompt, search, 8)
    outputs = us.generate(bible_of_beam_tree, prompt, search, max_new_tokens=8, n=4)
    assert [(text.text, text.total, text.finish_reason) for text in tree.texts] == [
        (out.text, out.total, out.finish_reason) for out in outputs
    ]
    for text, out in zip(tree.texts, outputs, strict=True):
        assert said(tree, text.node) == out.tokens
        assert tree.nodes[text.node].score == pytest.approx(sum(out.logps), rel=1e-6)
    assert tree.nodes[0].text == bible_of_beam_tree.tokenizer.show(tree.nodes[0].token)
    assert "dropped" in {node.status for node in tree.nodes}


@pytest.mark.parametrize("search", [us.DiverseBeam(4, groups=2, penalty=0.5), us.StochasticBeam(3)])
def test_other_beams_have_trees(bible_of_beam_tree, search):
    tree = beam_tree(bible_of_beam_tree, "And God said", search, 4)
    assert tree.nodes
    assert 1 < len(tree.texts) <= search.width
    assert None not in [text.node for text in tree.texts]


def test_what_keeps_no_tree_is_refused():
    with pytest.raises(ValueError, match=r"Greedy\(\) is not a beam search.*Beam"):
        beam_tree(random_table(5, seed=1), [1], us.Greedy())


@pytest.fixture(scope="module")
def bible_of_attention_map():
    return us.load("bible")


@pytest.fixture(scope="module")
def dates():
    return us.load("dates")


def test_a_language_model_looks_back(bible_of_attention_map):
    seen = attention_map(bible_of_attention_map, "And God said", us.Greedy(), 4, layer=2)
    weights = torch.tensor(seen.weights)
    out = us.generate(bible_of_attention_map, "And God said", us.Greedy(), max_new_tokens=4)
    assert "".join(seen.queries) == f"<bos>And God said{out.text}"
    assert weights.shape == (bible_of_attention_map.config.heads, len(seen.queries), len(seen.keys))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), atol=2e-3, rtol=0)
    assert weights.triu(1).sum() == 0
    assert (seen.kind, seen.kinds, seen.layer, seen.layers) == (
        "self",
        ("self",),
        2,
        bible_of_attention_map.config.layers,
    )


def test_a_translator_looks_at_its_source(dates):
    seen = attention_map(dates, "May 5th, 1921", us.Greedy(), 20, layer=1)
    assert (seen.kind, seen.kinds) == ("source", ("source", "encoder", "decoder"))
    assert "".join(seen.keys) == "May 5th, 1921<eos>"
    assert "".join(seen.queries) == "1921-05-05<eos>"
    weights = torch.tensor(seen.weights)
    assert weights.shape == (4, 11, 14)
    # Averaged over the heads, the last layer is what the steps tell.
    step, _ = dates.start([dates.tokenizer.encode("May 5th, 1921")])
    torch.testing.assert_close(weights[:, 0].mean(0), step.attention[0], atol=2e-4, rtol=0)
    for kind, size in (("encoder", 14), ("decoder", 11)):
        found = attention_map(dates, "May 5th, 1921", us.Greedy(), 20, kind)
        assert (len(found.queries), len(found.keys)) == (size, size)


def test_a_recurrent_translator_has_one_map():
    torch.manual_seed(0)
    model = RNNSeq2SeqConfig(vocab_size=9, width=8, bos=1, eos=2).build().eval()
    seen = attention_map(model, [3, 4, 5], us.Sample(), 3)
    assert (seen.kinds, seen.layers, seen.heads) == (("source",), 1, 1)
    assert seen.keys == ("<3>", "<4>", "<5>", "⟨end⟩")
    assert [sum(row) for row in seen.weights[0]] == pytest.approx([1] * len(seen.queries), abs=2e-3)


def test_the_model_itself_is_asked_where_another_stands_in(bible_of_attention_map):
    asked = []

    def read(work):
        asked.append(work)
        return work(bible_of_attention_map)

    seen = attention_map(bible_of_attention_map, "And God", us.Greedy(), read=read)
    assert len(asked) == 1
    assert "".join(seen.queries) == "<bos>And God"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "source"}, "not have source attention: choose from self"),
        ({"layer": 4}, "no layer 4: choose from 0 to 3"),
        ({"prompt": [5] * MAX_MAP_TOKENS, "max_new_tokens": 1}, "shorten"),
    ],
)
def test_invalid_attention_maps_are_refused(bible_of_attention_map, changes, said):
    with pytest.raises(ValueError, match=said):
        attention_map(
            **{"model": bible_of_attention_map, "prompt": "And God", "decoder": us.Greedy(), **changes}
        )


def test_a_model_without_attention_says_so():
    with pytest.raises(ValueError, match="does not have attention"):
        attention_map(random_table(5, seed=1), [1], us.Greedy())
