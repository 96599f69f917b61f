import math
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import unspool as us
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms import Grammar
from unspool.decode.transforms.grammar import Matchers, TokenBytes, import_llguidance, token_bytes
from unspool.interfaces import Step
from unspool.testing import TableModel
from unspool.tokenization.vocabulary import train_bpe, train_characters, train_words

TEXT = train_characters(["abc"])
GRAMMAR_EOS, A, B, C = 2, 4, 5, 6
V = TEXT.vocab_size


def table(**after):
    """p of <eos>, a, b and c after the last token."""

    def row(tokens):
        p = [0.0] * V
        for token, share in zip(
            (GRAMMAR_EOS, A, B, C), after.get(TEXT.show(tokens[-1]), [1.0, 0.0, 0.0, 0.0]), strict=True
        ):
            p[token] = share
        return p

    return TableModel(row, tokenizer=TEXT)


# After c (the prompt) a comes with ½, b with ¼; after a the grammar is improbable, after b it is not.
MODEL = table(
    c=[0.05, 0.5, 0.25, 0.2],
    a=[0.05, 0.05, 0.1, 0.8],
    b=[0.5, 0.3, 0.1, 0.1],
)
SAME = Grammar(regex="aa|ba|b")


def prepared(rule, model=MODEL):
    return rule.bind(model, Job(((C,),), (9,), (0,), eos=frozenset({GRAMMAR_EOS})))


def test_grammar_by_hand():
    logp = torch.tensor([[0.1, 0.1, 0.2, 0.1, 0.25, 0.15, 0.1]]).log()
    before = logp.clone()
    out = prepared(SAME)(logp, Step(logp), [Hypothesis(0, 0, (C,))])
    assert torch.equal(logp, before)
    assert (out > -math.inf).nonzero()[:, 1].tolist() == [A, B]
    assert out.softmax(-1)[0, [A, B]].tolist() == pytest.approx([0.625, 0.375])
    out = prepared(SAME)(logp, Step(logp), [Hypothesis(0, 0, (C,), (B,), (0.0,), (0.0,))])
    assert (out > -math.inf).nonzero()[:, 1].tolist() == [GRAMMAR_EOS, A]


def test_every_text_is_whole_and_of_the_grammar():
    for decoder in (us.Greedy(SAME), us.Sample(SAME), us.Beam(2, SAME), us.StochasticBeam(2, SAME)):
        for out in us.generate(MODEL, [[C]] * 5, decoder, max_new_tokens=5, seed=0):
            assert out.text in ("aa", "ba", "b")
            assert out.finish_reason == "eos"


# Truth: p(aa) = .5 · .05 · .05, p(ba) = .25 · .3 · .05, p(b) = .25 · .5, the last factor being the end.
P = {"aa": 0.5 * 0.05 * 0.05, "ba": 0.25 * 0.3 * 0.05, "b": 0.25 * 0.5}
# The mask: a or b by ⅔ to ⅓; after a always a; after b the end or a by ⅝ to ⅜; then the end.
Q = {"aa": 2 / 3, "ba": 1 / 3 * 0.375, "b": 1 / 3 * 0.625}
DRAWS = 3000


@pytest.fixture(scope="module")
def drawn():
    return us.generate(MODEL, [C], us.Sample(SAME), max_new_tokens=5, n=DRAWS, seed=2)


def test_what_is_drawn_is_the_masked_distribution_and_not_the_conditional_one(drawn):
    seen = Counter(out.text for out in drawn)
    assert set(seen) == set(Q)
    assert chisquare([seen[text] for text in Q], [DRAWS * q for q in Q.values()]).pvalue > 1e-3
    conditional = [DRAWS * p / sum(P.values()) for p in P.values()]
    assert chisquare([seen[text] for text in P], conditional).pvalue < 1e-9


def test_what_was_missing_is_known_and_weighs_texts_to_the_conditional_distribution(drawn):
    for out in drawn[:50]:
        assert math.exp(sum(out.logps) - sum(out.scores)) == pytest.approx(
            P[out.text] / Q[out.text], rel=1e-4
        )
    weights = Counter()
    for out in drawn:
        weights[out.text] += math.exp(sum(out.logps) - sum(out.scores))
    for text, p in P.items():
        assert weights[text] / weights.total() == pytest.approx(p / sum(P.values()), abs=0.02)


def test_where_rules_before_it_cut_all_that_is_allowed_the_best_allowed_token_stays():
    out = us.generate(MODEL, [C], us.Sample(us.TopK(1), Grammar(regex="ba|c")), max_new_tokens=5, seed=0)
    assert out.text == "ba"


def test_where_the_model_rules_out_all_that_is_allowed_they_are_equally_probable():
    never = table(c=[0.0, 1.0, 0.0, 0.0], b=[1.0, 0.0, 0.0, 0.0])
    outs = us.generate(never, [C], us.Sample(Grammar(choices=["b", "c"])), max_new_tokens=3, n=400, seed=0)
    assert {out.text for out in outs} == {"b", "c"}
    assert all(out.logps[0] == -math.inf for out in outs)
    assert chisquare([*Counter(out.text for out in outs).values()]).pvalue > 1e-3


def test_every_way_to_say_the_same():
    ways = [
        Grammar(regex="a|bb"),
        Grammar(choices=["a", "bb"]),
        Grammar(lark='start: "a" | "bb"'),
    ]
    for way in ways:
        outs = us.generate(MODEL, [C], us.Sample(way), max_new_tokens=3, n=20, seed=0)
        assert {out.text for out in outs} == {"a", "bb"}


def test_choices_are_taken_as_they_are_written():
    text = r"a.b+[c]\d{2}|(x)^$ #&~/-" + "\n\té"
    model = TableModel(lambda row: [1 / 60] * 60, tokenizer=train_characters([text + "xyz"]))
    for seed in range(3):
        decoder = us.Sample(Grammar(choices=[text]))
        assert us.generate(model, [5], decoder, max_new_tokens=99, seed=seed).text == text


def test_json():
    signs = '{}[]":,. -+0123456789eE\\/bfnrtu' + "abcdefghijklmnopqrstuvwxyz"
    codec = train_characters([signs])
    size = codec.vocab_size
    model = TableModel(lambda row: [1 / size] * size, tokenizer=codec)
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    rule = Grammar(json_schema={**schema, "additionalProperties": False})
    texts = [out.text for out in us.generate(model, [5], us.Sample(rule), n=30, seed=0)]
    assert {text.replace(" ", "") for text in texts} == {'{"a":true}', '{"a":false}'}
    assert not any("  " in text for text in texts)
    free = Grammar(json_schema=rule.json_schema, whitespace=r"[ ]*")
    assert any("  " in out.text for out in us.generate(model, [5], us.Sample(free), n=30, seed=0))


def test_words():
    model = TableModel(
        lambda row: [0.0, 0.0, 0.25, 0.0, 0.25, 0.25, 0.25], tokenizer=train_words(["yes no maybe"])
    )
    rule = Grammar(regex="(yes|no)( maybe)?")
    outs = us.generate(model, "maybe", us.Sample(rule), max_new_tokens=5, n=40, seed=0)
    assert {out.text for out in outs} == {" yes", " no", " yes maybe", " no maybe"}


def test_stop_tokens_end_a_text_where_the_grammar_does():
    outs = us.generate(
        MODEL, [C], us.Sample(Grammar(regex="a+")), max_new_tokens=30, n=20, seed=0, stop_ids=[C]
    )
    assert {out.finish_reason for out in outs} <= {"eos", "stop"}
    assert any(out.finish_reason == "stop" for out in outs)
    assert all(set(out.text) == {"a"} for out in outs)


@pytest.mark.parametrize(
    "rule",
    [
        Grammar(regex=r"\d+"),
        Grammar(lark='start: "a"'),
        Grammar(choices=["it's", 'a "word"']),
        Grammar(json_schema={"enum": ["a", 1, None]}, whitespace=r"\s*"),
    ],
    ids=repr,
)
def test_what_repr_prints_parse_reads(rule):
    assert us.parse(f"Sample({rule!r})") == us.Sample(rule)
    assert "None" not in repr(rule)


def test_a_schema_may_be_a_dict_in_a_decoder_that_is_text():
    spec = "Beam(3, Grammar(json_schema={'type': 'string', 'enum': ['a', 'b']}))"
    assert us.parse(spec) == us.Beam(3, Grammar(json_schema='{"type": "string", "enum": ["a", "b"]}'))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "was given nothing: give one of json_schema, regex, lark, choices"),
        ({"regex": "a", "choices": ["a"]}, "was given regex and choices"),
        ({"regex": "a("}, "Grammar.regex cannot be used: .*unclosed group"),
        ({"regex": "(?=a)b"}, "Grammar.regex cannot be used"),
        ({"lark": "start: nowhere"}, "Grammar.lark cannot be used: .*unknown name"),
        ({"json_schema": {"type": "strin"}}, "Grammar.json_schema cannot be used: .*strin"),
        ({"json_schema": {"not": {}}}, "cannot be used: .*not"),
        ({"json_schema": "{"}, "must be a JSON schema"),
        ({"json_schema": {"enum": [{1, 2}]}}, "must be a JSON schema"),
        ({"json_schema": [1]}, "must be a JSON schema"),
        ({"choices": []}, "Grammar.choices is empty"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Grammar(**arguments)


@pytest.mark.parametrize("arguments", [{"regex": 3}, {"choices": "ab"}, {"choices": [1]}, {"lark": b"a"}])
def test_wrong_types_are_refused(arguments):
    with pytest.raises(TypeError, match=r"Grammar\.\w+ (is|holds) .* must"):
        Grammar(**arguments)


def test_a_model_that_cannot_be_held_to_it_is_told_so():
    without = TableModel(MODEL.table)
    with pytest.raises(ValueError, match="Grammar needs a tokenizer"):
        us.generate(without, [C], us.Greedy(SAME))
    with pytest.raises(ValueError, match=r"needs an end-of-text token.* stop_ids"):
        SAME.bind(MODEL, Job(((C,),), (9,), (0,)))
    with pytest.raises(ValueError, match="not bound to a model"):
        us.survivors(SAME, torch.zeros(V))


def test_grammar_refuses_a_right_to_left_model():
    model = replace(MODEL, tokenizer=replace(TEXT, right_to_left=True))
    with pytest.raises(ValueError, match="use a left-to-right model"):
        us.generate(model, "a", us.Greedy(Grammar(choices=["ab"])))


MATCHERS_EOS = 2
LETTERS = train_characters(["abc"])  # a, b, c are 4, 5, 6
WORDS = train_words(["ja nein"])  # ja is 4, nein is 5


def matchers(text, regex, max_states=100):
    return Matchers(
        f"start: /{regex}/", TokenBytes(text, text.vocab_size, frozenset({MATCHERS_EOS})), max_states
    )


def after(found, *rows):
    paths = [Hypothesis(0, 0, (4,), tuple(tokens)) for tokens in rows]
    return [np.flatnonzero(row).tolist() for row in found.allowed(paths)]


def test_matchers_by_hand():
    found = matchers(LETTERS, "a(b|bc)")
    assert after(found, [], [4], [4, 5], [4, 5, 6]) == [[4], [5], [MATCHERS_EOS, 6], [MATCHERS_EOS]]


def test_paths_fork_and_go_back():
    found = matchers(LETTERS, "(ab|ba)*")
    assert after(found, [4], [5]) == [[5], [4]]
    assert after(found, [4, 5], [5, 4]) == [[MATCHERS_EOS, 4, 5]] * 2
    assert after(found, [4]) == [[5]]  # as if nothing had been tried


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_what_is_forgotten_is_read_anew(kept):
    found = matchers(LETTERS, "(abc)*", kept)
    rows = [(4, 5, 6, 4, 5)[:n] for n in range(6)]
    for _ in range(2):
        assert after(found, *reversed(rows)) == [[6], [5], [MATCHERS_EOS, 4], [6], [5], [MATCHERS_EOS, 4]]


def test_every_spelling_of_what_must_come_counts():
    text = train_bpe(["abc abc abc"], 262)
    found = matchers(text, "abc")
    assert [text.show(token) for token in after(found, [])[0]] == ["a", "ab", "abc"]


def test_the_first_word_comes_without_its_space():
    assert after(matchers(WORDS, "ja( nein)*"), [], [4], [4, 5]) == [
        [4],
        [MATCHERS_EOS, 5],
        [MATCHERS_EOS, 5],
    ]


def test_a_text_that_left_the_grammar_is_refused():
    with pytest.raises(
        ValueError,
        match=r"does not allow token 6 \('c'\) here: put Grammar after all other transforms",
    ):
        after(matchers(LETTERS, "ab"), [6])


def test_a_dead_end_of_the_vocabulary_is_refused():
    found = matchers(LETTERS, "a(xyz)")
    assert after(found, []) == [[4]]
    with pytest.raises(ValueError, match="after 'a' no token of the vocabulary matches"):
        after(found, [4])


def test_a_grammar_that_needs_too_much_is_refused():
    with pytest.raises(ValueError, match="the grammar cannot be used"):
        Matchers("start: nowhere", TokenBytes(LETTERS, 7, frozenset({MATCHERS_EOS})), 9)


ENDS = frozenset({2})


def test_a_vocabulary_of_bytes_is_there_once():
    text = train_bpe(["a b", "é"], 262)
    found = TokenBytes(text, text.vocab_size, ENDS)
    assert not found.has_first_forms
    assert found.special[:3].all()
    assert not found.special[3:].any()
    assert found.pieces()[:4] == [b"<pad>", b"<bos>", b"<eos>", b"<unk>"]
    assert {bytes([n]) for n in range(256)} <= set(found.pieces())
    assert found.llguidance_tokenizer.eos_token == 2
    assert not found.is_first(Hypothesis(0, 0, ()))


def test_words_are_there_twice_with_and_without_a_space():
    text = train_words(["ja nein"])
    found = TokenBytes(text, text.vocab_size, ENDS)
    assert found.has_first_forms
    assert found.pieces()[:6] == [b"< pad >", b"< bos >", b"< eos >", b" <unk>", b" ja", b" nein"]
    assert found.pieces()[6:] == [b"", b"", b"", b"<unk>", b"ja", b"nein"]
    assert [found.id_of(token, first=True) for token in (2, 4)] == [2, 10]
    assert [found.id_of(token, first=False) for token in (2, 4)] == [2, 4]
    # No word comes without its space: the text of a grammar begins after it.
    assert found.is_first(Hypothesis(0, 0, (4,)))
    assert found.is_first(Hypothesis(0, 0, ()))


def test_a_mask_over_both_halves_is_one_over_tokens():
    text = train_words(["ja nein"])
    found = TokenBytes(text, text.vocab_size, ENDS)  # six tokens: ids 0…5, and 6…11 for the first
    bits = (1 << 2 | 1 << 5 | 1 << 10).to_bytes(2, "little")
    assert found.allowed(bits, first=True).nonzero()[0].tolist() == [2, 4]
    assert found.allowed(bits, first=False).nonzero()[0].tolist() == [2, 5]


def test_ids_that_only_the_model_has_are_never_allowed():
    text = train_characters(["ab"])
    found = TokenBytes(text, text.vocab_size + 3, ENDS)
    assert found.pieces()[-3:] == [b""] * 3
    matcher = import_llguidance().LLMatcher(
        found.llguidance_tokenizer, import_llguidance().LLMatcher.grammar_from_regex("[ab<>a-z]*")
    )
    assert not found.allowed(matcher.compute_bitmask(), first=False)[-3:].any()


def test_the_same_text_is_read_once():
    text = train_characters(["ab"])
    assert token_bytes(text, 6, ENDS) is token_bytes(text, 6, ENDS)
    assert token_bytes(text, 6, ENDS) is not token_bytes(text, 6, frozenset({1}))


def test_a_missing_package_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r"needs llguidance: pip install 'unspool\[grammar\]'"):
        import_llguidance()
