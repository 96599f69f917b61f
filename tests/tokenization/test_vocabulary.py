from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from unspool.config import choose, to_dict
from unspool.tokenization import (
    BPE,
    TOKENIZER_CONFIGS,
    Characters,
    Separate,
    Tokenizer,
    Words,
    train_bpe,
    train_characters,
    train_words,
)
from unspool.tokenization.vocabulary import BOS_ID, EOS_ID, MAX_WORD_CHARS, PAD_ID, SPECIALS, UNK_ID

MAKERS = {
    "train_bpe": lambda lines: train_bpe(lines, 300),
    "words": train_words,
    "characters": train_characters,
}


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    return MAKERS[request.param]


def test_special_tokens_come_first(make) -> None:  # type: ignore[no-untyped-def]
    codec = make(["a b"])
    spelled = [codec.backend.id_to_token(token).replace(" ", "") for token in range(4)]
    assert spelled == [*SPECIALS]
    assert [PAD_ID, BOS_ID, EOS_ID, UNK_ID] == [0, 1, 2, 3]
    assert (codec.bos_id, codec.eos_ids, codec.add_bos) == (1, frozenset({2}), False)
    assert (codec.token_to_id(codec.bos_token), codec.token_to_id(codec.eos_token)) == (1, 2)


def test_what_is_unknown_is_seen_and_the_rest_of_the_special_tokens_is_not(make) -> None:  # type: ignore[no-untyped-def]
    codec = make(["a b"])
    assert codec.decode([BOS_ID, UNK_ID, EOS_ID, PAD_ID]) == "<unk>"
    watch = codec.detokenizer()
    for token in (BOS_ID, *codec.encode("a"), UNK_ID, EOS_ID):
        watch = watch.push(token)
    assert watch.close() == codec.decode([*codec.encode("a"), UNK_ID])
    assert watch.close().endswith("<unk>")


SPELLED = [*SPECIALS, "< eos >", "<e", "os>", "<", ">", "pad", " ", "a", "\n"]


@given(st.lists(st.sampled_from(SPELLED), min_size=1).filter(lambda parts: any(map(str.strip, parts))))
def test_a_text_that_spells_special_tokens_is_a_text(parts: list[str]) -> None:
    text = "".join(parts)
    for codec, given_back in (
        (train_bpe([text] * 3, 300, min_count=1), text),
        (train_characters([text]), text),
        (train_words([text]), " ".join(text.split())),
    ):
        assert min(codec.encode(text), default=4) > UNK_ID
        assert codec.decode(codec.encode(text)) == given_back
        assert codec.backend.encode_batch([text], add_special_tokens=False)[0].ids == codec.encode(text)
    # A text that the vocabulary was not learnt from may hold unknown words, but none that steer.
    for codec in (LEARNT, train_words(["a b"]), train_characters(["ab"])):
        assert {PAD_ID, BOS_ID, EOS_ID}.isdisjoint(codec.encode(text))


def test_nothing_to_learn_from_is_said(make) -> None:  # type: ignore[no-untyped-def]
    for lines in ([], [""], ["", " \n"], iter(())):
        with pytest.raises(ValueError, match="no text to learn"):
            make(lines)


def test_one_string_is_not_a_list_of_lines(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match="list of strings"):
        make("the cat")
    with pytest.raises(TypeError, match="line 1 is a int"):
        make(["a", 1])


def test_bpe_joins_the_most_frequent_pair_first() -> None:
    # ab occurs 5 times, bc 3 times: 4 special tokens + 256 bytes leave room for two joins, ab and then abc.
    codec = train_bpe(["abc", "abc", "abc", "ab", "ab"], 262)
    assert codec.vocab_size == 262
    assert (codec.token_to_id("ab"), codec.token_to_id("abc")) == (260, 261)
    assert codec.encode("abcab") == [261, 260]


def test_a_pair_seen_too_seldom_is_not_joined() -> None:
    assert train_bpe(["abc abc"], 300, min_count=3).vocab_size == 260


def test_one_very_long_word_does_not_stall_bpe() -> None:
    dice = Random(0)
    word = "".join(dice.choices("abcdefgh", k=200_000))
    lines = ["the cat sat on the mat"] * 50
    start = time.perf_counter()
    codec = train_bpe([*lines, word, "a" * 200_000, " " * 200_000], 1000)
    assert (
        time.perf_counter() - start < 10
    )  # a minute and more, where a word is rewritten for each join in it
    assert codec.decode(codec.encode(word)) == word


def test_a_vocabulary_of_words_of_ordinary_length_is_learnt_from_whole_words(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    lines = [
        "the cat sat on the mat",
        "x" * MAX_WORD_CHARS + " " + "y" * 100,
        " " * 40 + "die Donaudampfschifffahrt",
    ] * 3
    ours = train_bpe(lines, 400)
    monkeypatch.setattr("unspool.tokenization.vocabulary._split_long_words", lambda lines: lines)
    assert ours.backend.to_str() == train_bpe(lines, 400).backend.to_str()


def test_bpe_needs_room_for_the_bytes() -> None:
    with pytest.raises(ValueError, match=r"vocab_size is 259; .* need 260"):
        train_bpe(["a"], 259)


def test_words_are_ranked_by_count_and_then_by_name() -> None:
    codec = train_words(["b a c", "c d c b"], vocab_size=7)
    assert [codec.token_to_id(word) for word in "cbad"] == [4, 5, 6, None]
    assert codec.encode("c d  a\n") == [4, UNK_ID, 6]
    assert codec.decode([4, 5, 6]) == "c b a"
    assert train_words(["b a c", "c d c b"], min_count=2).vocab_size == 6


def test_words_need_one_word() -> None:
    with pytest.raises(ValueError, match="one word need 5"):
        train_words(["a"], vocab_size=4)
    with pytest.raises(ValueError, match="no word occurs 2 times"):
        train_words(["a b"], min_count=2)


def test_characters_are_in_order_and_others_unknown() -> None:
    codec = train_characters(["ba", "é\n"])
    assert [codec.token_to_id(each) for each in "\nabé"] == [4, 5, 6, 7]
    assert codec.encode("a\nx é") == [5, 4, UNK_ID, UNK_ID, 7]
    assert codec.decode([5, 4, 7, 5]) == "a\néa"


def test_a_first_token_is_written_where_asked_for() -> None:
    assert train_bpe(["a"], 260, add_bos=True).encode("") == [BOS_ID]
    assert train_words(["a"], add_bos=True).encode("a") == [BOS_ID, 4]
    assert train_characters(["a"], add_bos=True).encode("a") == [BOS_ID, 4]


LEARNT = train_bpe(["the cat sat", "le café"] * 4, 290)


PLAIN = st.text(min_size=1)


@given(PLAIN)
def test_bpe_gives_every_text_back(text: str) -> None:
    assert LEARNT.decode(LEARNT.encode(text)) == text


@given(st.lists(PLAIN, min_size=1).filter(lambda lines: any(map(str.strip, lines))))
def test_characters_give_back_what_they_learnt(lines: list[str]) -> None:
    codec = train_characters(lines)
    assert all(codec.decode(codec.encode(line)) == line for line in lines)


@given(st.lists(st.text("abcé日.", min_size=1), min_size=1))
def test_words_give_back_what_they_learnt(line: list[str]) -> None:
    codec = train_words([" ".join(line)])
    assert codec.decode(codec.encode("\n".join(line))) == " ".join(line)


def test_a_recipe_names_its_vocabulary() -> None:
    lines = ["b a", "b c"]
    for said, same in (
        ({"kind": "bpe", "vocab_size": 262}, train_bpe(lines, 262)),
        ({"kind": "words", "vocab_size": 6}, train_words(lines, vocab_size=6)),
        ({"kind": "characters"}, train_characters(lines)),
    ):
        codec = choose(TOKENIZER_CONFIGS, said, "text").train(iter(lines))
        assert codec.backend.get_vocab() == same.backend.get_vocab()
    assert BPE() == BPE(vocab_size=8000, min_count=2)


def test_what_was_learnt_can_be_saved(tmp_path: Path) -> None:
    for config in (BPE(300), Words(), Characters()):
        codec = config.train(["the cat sat", "the dog"])
        codec.save(tmp_path)
        for text in ("the dog sat", "the <eos> dog <pad>"):
            assert Tokenizer.load(tmp_path).encode(text) == codec.encode(text)


def test_a_vocabulary_of_one_word_is_nothing_to_predict() -> None:
    with pytest.raises(ValueError, match="one word, 'a': there is nothing to predict"):
        Words().train(["a a", "a"])
    with pytest.raises(ValueError, match="one character, 'a'"):
        Characters().train(["aa"])
    with pytest.raises(ValueError, match="smaller min_count"):
        Words(min_count=2).train(["a a b"])


def test_sources_and_targets_may_have_vocabularies_of_their_own(tmp_path: Path) -> None:
    said = {"kind": "separate", "source": {"kind": "words"}, "target": {"kind": "characters"}}
    config = choose(TOKENIZER_CONFIGS, said, "text")
    assert isinstance(config, Separate)
    assert config.source == {"kind": "words", "min_count": 1, "right_to_left": False}
    assert choose(TOKENIZER_CONFIGS, {"kind": "separate", **to_dict(config)}, "text") == config
    codec = config.train_pairs(iter(["ein Haus", "kein Haus"]), iter(["ab", "ba"]))
    assert codec.source is not None
    assert (codec.vocab_size, codec.source.vocab_size) == (6, 7)
    codec.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.source is not None
    assert again.source.encode("kein Haus <eos>") == codec.source.encode("kein Haus <eos>")
    assert again.encode("ab") == codec.encode("ab")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("source_text.json", "source_tokenizer.json", "text.json", "tokenizer.json"),
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source": {"kind": "word"}}, r"\[text\.source\]: did you mean 'words'"),
        ({"target": {}}, r'\[text\.target\] lacks "kind"'),
        ({"source": {"kind": "separate"}}, "separate"),
        ({"target": {"kind": "words", "size": 3}}, r"'size' is not a known key of \[text\.target\]"),
    ],
)
def test_a_side_that_cannot_be_is_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Separate(**{"source": {"kind": "words"}, "target": {"kind": "words"}, **wrong})  # type: ignore[arg-type]


def test_sides_need_pairs() -> None:
    with pytest.raises(ValueError, match="is for data of pairs"):
        Separate({"kind": "words"}, {"kind": "words"}).train(["a b"])
