from __future__ import annotations

import time
from dataclasses import replace
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
from unspool.tokenization.vocabulary import (
    BOS_ID,
    EOS_ID,
    MAX_WORD_CHARS,
    PAD_ID,
    SPECIALS,
    UNK_ID,
)

MAKERS = {
    "train_bpe": lambda lines: train_bpe(lines, 300),
    "words": train_words,
    "characters": train_characters,
}


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    return MAKERS[request.param]


def test_special_tokens_have_the_first_ids(make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make(["a b"])
    spelled = [tokenizer.backend.id_to_token(token).replace(" ", "") for token in range(4)]
    assert spelled == [*SPECIALS]
    assert [PAD_ID, BOS_ID, EOS_ID, UNK_ID] == [0, 1, 2, 3]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, frozenset({2}), False)
    assert (tokenizer.token_to_id(tokenizer.bos_token), tokenizer.token_to_id(tokenizer.eos_token)) == (1, 2)


def test_unk_is_visible_and_other_special_tokens_are_not(make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make(["a b"])
    assert tokenizer.decode([BOS_ID, UNK_ID, EOS_ID, PAD_ID]) == "<unk>"
    detokenizer = tokenizer.detokenizer()
    for token in (BOS_ID, *tokenizer.encode("a"), UNK_ID, EOS_ID):
        detokenizer = detokenizer.push(token)
    assert detokenizer.close() == tokenizer.decode([*tokenizer.encode("a"), UNK_ID])
    assert detokenizer.close().endswith("<unk>")


SPELLED = [*SPECIALS, "< eos >", "<e", "os>", "<", ">", "pad", " ", "a", "\n"]


@given(st.lists(st.sampled_from(SPELLED), min_size=1).filter(lambda parts: any(map(str.strip, parts))))
def test_text_that_spells_special_tokens_round_trips(parts: list[str]) -> None:
    text = "".join(parts)
    for tokenizer, given_back in (
        (train_bpe([text] * 3, 300, min_count=1), text),
        (train_characters([text]), text),
        (train_words([text]), " ".join(text.split())),
    ):
        assert min(tokenizer.encode(text), default=4) > UNK_ID
        assert tokenizer.decode(tokenizer.encode(text)) == given_back
        assert tokenizer.backend.encode_batch([text], add_special_tokens=False)[0].ids == tokenizer.encode(
            text
        )
    # A text that the vocabulary was not learnt from may hold unknown words, but none that steer.
    for tokenizer in (LEARNT, train_words(["a b"]), train_characters(["ab"])):
        assert {PAD_ID, BOS_ID, EOS_ID}.isdisjoint(tokenizer.encode(text))


def test_empty_text_is_rejected(make) -> None:  # type: ignore[no-untyped-def]
    for lines in ([], [""], ["", " \n"], iter(())):
        with pytest.raises(ValueError, match="no text to train"):
            make(lines)


def test_a_bare_string_is_rejected(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match="list of strings"):
        make("the cat")
    with pytest.raises(TypeError, match="line 1 is a int"):
        make(["a", 1])


def test_bpe_merges_the_most_frequent_pair_first() -> None:
    # ab occurs 5 times, bc 3 times: 4 special tokens + 256 bytes leave room for two joins, ab and then abc.
    tokenizer = train_bpe(["abc", "abc", "abc", "ab", "ab"], 262)
    assert tokenizer.vocab_size == 262
    assert (tokenizer.token_to_id("ab"), tokenizer.token_to_id("abc")) == (260, 261)
    assert tokenizer.encode("abcab") == [261, 260]


def test_bpe_does_not_merge_rare_pairs() -> None:
    assert train_bpe(["abc abc"], 300, min_count=3).vocab_size == 260


def test_bpe_training_does_not_stall_on_a_very_long_word() -> None:
    dice = Random(0)
    word = "".join(dice.choices("abcdefgh", k=200_000))
    lines = ["the cat sat on the mat"] * 50
    start = time.perf_counter()
    tokenizer = train_bpe([*lines, word, "a" * 200_000, " " * 200_000], 1000)
    assert (
        time.perf_counter() - start < 10
    )  # a minute and more, where a word is rewritten for each join in it
    assert tokenizer.decode(tokenizer.encode(word)) == word


def test_splitting_long_words_does_not_change_ordinary_vocabularies(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    lines = [
        "the cat sat on the mat",
        "x" * MAX_WORD_CHARS + " " + "y" * 100,
        " " * 40 + "die Donaudampfschifffahrt",
    ] * 3
    ours = train_bpe(lines, 400)
    monkeypatch.setattr("unspool.tokenization.vocabulary._split_long_words", lambda lines: lines)
    assert ours.backend.to_str() == train_bpe(lines, 400).backend.to_str()


def test_bpe_vocab_size_must_cover_the_bytes() -> None:
    with pytest.raises(ValueError, match=r"vocab_size is 259; .* need 260"):
        train_bpe(["a"], 259)


def test_words_are_ranked_by_count_then_alphabetically() -> None:
    tokenizer = train_words(["b a c", "c d c b"], vocab_size=7)
    assert [tokenizer.token_to_id(word) for word in "cbad"] == [4, 5, 6, None]
    assert tokenizer.encode("c d  a\n") == [4, UNK_ID, 6]
    assert tokenizer.decode([4, 5, 6]) == "c b a"
    assert train_words(["b a c", "c d c b"], min_count=2).vocab_size == 6


def test_words_must_contain_one_word() -> None:
    with pytest.raises(ValueError, match="one word need 5"):
        train_words(["a"], vocab_size=4)
    with pytest.raises(ValueError, match="no word occurs 2 times"):
        train_words(["a b"], min_count=2)


def test_characters_are_sorted_and_others_unknown() -> None:
    tokenizer = train_characters(["ba", "é\n"])
    assert [tokenizer.token_to_id(each) for each in "\nabé"] == [4, 5, 6, 7]
    assert tokenizer.encode("a\nx é") == [5, 4, UNK_ID, UNK_ID, 7]
    assert tokenizer.decode([5, 4, 7, 5]) == "a\néa"


def test_add_bos_writes_bos() -> None:
    assert replace(train_bpe(["a"], 260), add_bos=True).encode("") == [BOS_ID]
    assert replace(train_words(["a"]), add_bos=True).encode("a") == [BOS_ID, 4]
    assert replace(train_characters(["a"]), add_bos=True).encode("a") == [BOS_ID, 4]


LEARNT = train_bpe(["the cat sat", "le café"] * 4, 290)


PLAIN = st.text(min_size=1)


@given(PLAIN)
def test_bpe_text_round_trips(text: str) -> None:
    assert LEARNT.decode(LEARNT.encode(text)) == text


@given(st.lists(PLAIN, min_size=1).filter(lambda lines: any(map(str.strip, lines))))
def test_character_text_round_trips(lines: list[str]) -> None:
    tokenizer = train_characters(lines)
    assert all(tokenizer.decode(tokenizer.encode(line)) == line for line in lines)


@given(st.lists(st.text("abcé日.", min_size=1), min_size=1))
def test_word_text_round_trips(line: list[str]) -> None:
    tokenizer = train_words([" ".join(line)])
    assert tokenizer.decode(tokenizer.encode("\n".join(line))) == " ".join(line)


def test_vocabulary_of_a_recipe() -> None:
    lines = ["b a", "b c"]
    for settings_, same in (
        ({"kind": "bpe", "vocab_size": 262}, train_bpe(lines, 262)),
        ({"kind": "words", "vocab_size": 6}, train_words(lines, vocab_size=6)),
        ({"kind": "characters"}, train_characters(lines)),
    ):
        tokenizer = choose(TOKENIZER_CONFIGS, settings_, "tokenizer").train(iter(lines))
        assert tokenizer.backend.get_vocab() == same.backend.get_vocab()
    assert BPE() == BPE(vocab_size=8000, min_count=2)


def test_trained_vocabularies_can_be_saved(tmp_path: Path) -> None:
    for config in (BPE(300), Words(), Characters()):
        tokenizer = config.train(["the cat sat", "the dog"])
        tokenizer.save(tmp_path)
        for text in ("the dog sat", "the <eos> dog <pad>"):
            assert Tokenizer.load(tmp_path).encode(text) == tokenizer.encode(text)


def test_single_entry_vocabularies_are_rejected() -> None:
    with pytest.raises(ValueError, match="one word, 'a': there is nothing to predict"):
        Words().train(["a a", "a"])
    with pytest.raises(ValueError, match="one character, 'a'"):
        Characters().train(["aa"])
    with pytest.raises(ValueError, match="smaller min_count"):
        Words(min_count=2).train(["a a b"])


def test_separate_source_and_target_vocabularies(tmp_path: Path) -> None:
    settings_ = {"kind": "separate", "source": {"kind": "words"}, "target": {"kind": "characters"}}
    config = choose(TOKENIZER_CONFIGS, settings_, "tokenizer")
    assert isinstance(config, Separate)
    assert config.source == {"kind": "words", "min_count": 1, "right_to_left": False}
    assert choose(TOKENIZER_CONFIGS, {"kind": "separate", **to_dict(config)}, "tokenizer") == config
    tokenizer = config.train_pairs(iter(["ein Haus", "kein Haus"]), iter(["ab", "ba"]))
    assert tokenizer.source is not None
    assert (tokenizer.vocab_size, tokenizer.source.vocab_size) == (6, 7)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.source is not None
    assert again.source.encode("kein Haus <eos>") == tokenizer.source.encode("kein Haus <eos>")
    assert again.encode("ab") == tokenizer.encode("ab")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "source_tokenizer.json",
        "source_tokenizer_settings.json",
        "tokenizer.json",
        "tokenizer_settings.json",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": {"kind": "word"}}, r"\[tokenizer\.source\]: did you mean 'words'"),
        ({"target": {}}, r'\[tokenizer\.target\] lacks "kind"'),
        ({"source": {"kind": "separate"}}, "separate"),
        ({"target": {"kind": "words", "size": 3}}, r"'size' is not a known key of \[tokenizer\.target\]"),
    ],
)
def test_wrong_side_settings_are_reported(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Separate(**{"source": {"kind": "words"}, "target": {"kind": "words"}, **wrong})  # type: ignore[arg-type]


def test_separate_vocabularies_need_pairs() -> None:
    with pytest.raises(ValueError, match="needs pairs of source and target"):
        Separate({"kind": "words"}, {"kind": "words"}).train(["a b"])
