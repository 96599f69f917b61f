from __future__ import annotations

import gzip
import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch

from unspool.config import choose
from unspool.data import (
    BATCHES,
    DATA,
    Bucketed,
    LabelledLines,
    LanguageData,
    Lines,
    Packed,
    Parallel,
    TaggedLines,
    TaskData,
    encoded_store,
    prepare,
)
from unspool.data.examples import Texts
from unspool.data.preparation import PreparedData
from unspool.data.rows import HeldOut, OnProgress, Row
from unspool.tokenization import BPE, TOKENIZER_CONFIGS, Characters, Separate, Tokenizer, Words, train_words

Write = Callable[..., str]


def sentences(count: int, seed: int = 0, most: int = 9) -> str:
    random = Random(seed)
    return "".join(
        " ".join(random.choices("abcdefgh", k=random.randint(1, most))) + "\n" for _ in range(count)
    )


def spoken(prepared: PreparedData, epoch: int = 0) -> list[str]:
    """Every training text of one epoch, read back from its targets."""
    feed, found = prepared.train, []
    for at in range(feed.per_epoch):
        batch = feed.batch(epoch * feed.per_epoch + at)
        found += [prepared.tokenizer.decode(row.tolist()) for row in batch.targets_NU]
    return sorted(found)


def checked(prepared: PreparedData) -> list[str]:
    return sorted(
        prepared.tokenizer.decode(row.tolist()) for batch in prepared.valid for row in batch.targets_NU
    )


@pytest.mark.parametrize("cache", [False, True])
def test_training_and_validation_are_all_lines_and_share_none(
    write: Write, tmp_path: Path, cache: bool
) -> None:
    content = sentences(100)
    data = Lines(train=write("a.txt", content), valid_lines=20)
    prepared = prepare(data, Words(), Bucketed(64), seed=5, cache=tmp_path / "cache" if cache else None)
    assert len(checked(prepared)) == 20
    for epoch in (0, 1):
        assert sorted(spoken(prepared, epoch) + checked(prepared)) == sorted(content.splitlines())
    assert prepared.facts["train_examples"] == 80
    assert prepared.facts["valid_examples"] == 20
    assert prepared.facts["vocab_size"] == prepared.tokenizer.vocab_size == 12
    assert prepared.facts["batches_per_epoch"] == prepared.train.per_epoch
    assert prepared.notes == ()


def test_a_second_run_reads_what_the_first_one_wrote(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Parallel(source=write("a", sentences(50, 1)), target=write("b", sentences(50, 2)), valid_share=0.1)
    first = prepare(data, BPE(270), Bucketed(64), seed=1, cache=tmp_path / "cache")
    kept = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert [name.split("-")[0] for name in kept] == ["tokenizer", "tokens"]

    def never(*_: object) -> None:
        pytest.fail("a cached run read the rows again")

    monkeypatch.setattr(Parallel, "train_rows", lambda *_: iter(()))
    monkeypatch.setattr("unspool.data.encoded_store.encode_rows", never)
    second = prepare(data, BPE(270), Bucketed(64), seed=1, cache=tmp_path / "cache")
    for number in range(first.train.per_epoch):
        one, two = first.train.batch(number), second.train.batch(number)
        assert torch.equal(one.targets_NU, two.targets_NU)
        assert one.source_NS is not None
        assert two.source_NS is not None
        assert torch.equal(one.source_NS, two.source_NS)
    assert checked(first) == checked(second)
    assert first.facts == second.facts
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == kept


@pytest.mark.parametrize(
    "name", ["facts.json", "train0.offsets", "train0.uint16", "tokenizer.json", "tokenizer_settings.json"]
)
def test_a_damaged_cache_is_made_again_and_said(write: Write, tmp_path: Path, name: str) -> None:
    data = Lines(train=write("a.txt", sentences(30)))
    first = prepare(data, Words(), Bucketed(64), cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob(name)
    path.write_bytes(path.read_bytes()[:-3])
    second = prepare(data, Words(), Bucketed(64), cache=tmp_path / "cache")
    assert spoken(second) == spoken(first)
    (note,) = second.notes
    assert note.startswith("the cache was damaged and is rebuilt")
    assert name in note
    assert prepare(data, Words(), Bucketed(64), cache=tmp_path / "cache").notes == ()


def test_memory_and_cache_give_the_same_batches(write: Write, tmp_path: Path) -> None:
    data = Lines(train=write("a.txt", sentences(60)), valid_lines=5)
    for batches in (Bucketed(64), Packed(2, 8)):
        one, two = (prepare(data, Words(), batches, 1, cache) for cache in (None, tmp_path / "c"))
        assert one.train.per_epoch == two.train.per_epoch
        for number in range(2 * one.train.per_epoch):
            assert torch.equal(one.train.batch(number).targets_NU, two.train.batch(number).targets_NU)
        assert one.facts == two.facts


def test_changed_content_is_encoded_anew(write: Write, tmp_path: Path) -> None:
    data = Lines(train=write("a.txt", "a b\n"))
    assert spoken(prepare(data, Words(), Bucketed(64), cache=tmp_path / "c")) == ["a b"]
    write("a.txt", "b a\n")
    assert spoken(prepare(data, Words(), Bucketed(64), cache=tmp_path / "c")) == ["b a"]


def test_the_vocabulary_is_learnt_from_training_lines_only(write: Write) -> None:
    data = Lines(train=write("a.txt", "a b\nb a\n"), valid=write("v.txt", "a z\n"))
    prepared = prepare(data, Words(), Bucketed(64))
    assert prepared.tokenizer.token_to_id("z") is None
    held = Lines(train=write("b.txt", "".join(f"w{at} x\n" for at in range(20))), valid_lines=5)
    assert prepare(held, Words(), Bucketed(64)).tokenizer.vocab_size == 4 + 15 + 1


def test_a_vocabulary_that_exists_is_used(write: Write) -> None:
    codec = replace(train_words(["z y x a b"]), add_bos=True)
    prepared = prepare(Lines(train=write("a.txt", "a b\n")), codec, Bucketed(64))
    assert prepared.tokenizer is codec
    assert prepared.train.batch(0).inputs_NT.tolist() == [codec.encode("a b")]


def test_empty_rows_are_left_out_and_said(write: Write) -> None:
    prepared = prepare(Lines(train=write("a.txt", "a\n\n  \nb\n")), Words(), Bucketed(64))
    assert spoken(prepared) == ["a", "b"]
    assert prepared.notes == ("2 rows with an empty column were left out",)
    assert prepared.facts["empty_rows"] == 2


def test_a_whole_file_is_packed_with_its_line_ends(write: Write) -> None:
    content = "to be\n\nor not\n" * 10
    data = Lines(train=write("a.txt", content), document="file", valid_lines=6)
    prepared = prepare(data, Characters(), Packed(rows=3, length=8))
    targets = [token for batch in prepared.valid for token in batch.targets_NU[batch.weights_NU > 0].tolist()]
    # Nothing stands before the first token.
    assert "t" + prepared.tokenizer.decode(targets) == "to be\n\nor not\n" * 2
    assert prepared.facts["train_examples"] == 1
    with pytest.raises(ValueError, match="packed"):
        prepare(data, Characters(), Bucketed(64))


def test_several_whole_files_are_texts_of_their_own(write: Write) -> None:
    one, two = "to be\n" * 9, "or not\n" * 8
    data = Lines(
        train=(write("a", one), write("b", gzip.compress(two.encode()))), document="file", valid_lines=3
    )
    prepared = prepare(data, Characters(), Packed(rows=1, length=4))
    assert prepared.facts["train_examples"] == 2
    stream = prepared.train.stream.tolist()  # type: ignore[attr-defined]
    ends = [at for at, token in enumerate(stream) if token == 2]
    assert prepared.tokenizer.decode(stream[: ends[0]]) == one
    assert prepared.tokenizer.decode(stream[ends[0] :]) == "or not\n" * 5
    assert 1 not in stream  # blocks begin anywhere in a file: there is no BOS
    assert prepared.tokenizer.bos_id is None
    assert ends[1] == len(stream) - 1


def test_what_is_validated_on_and_learnt_from_is_said(write: Write) -> None:
    one, same, other = write("a", "a b\n"), write("b", "a b\n"), write("c", "b a\n")
    notes = prepare(Lines(train=(other, one), valid=same), Words(), Bucketed(64)).notes
    assert [note.split(":")[0] for note in notes] == [
        "data.valid and data.train share a file, so that validation measures memorisation"
    ]
    pairs = Parallel(source=one, target=other, valid_source=same, valid_target=other)
    assert "data.valid_source and data.source share a file" in prepare(pairs, Words(), Bucketed(64)).notes[0]
    assert prepare(Lines(train=one, valid=other), Words(), Bucketed(64)).notes == ()


@pytest.mark.parametrize("cache", [False, True])
def test_a_vocabulary_that_stays_smaller_is_said(write: Write, tmp_path: Path, cache: bool) -> None:
    data = Lines(train=write("a.txt", "a b c\n"))
    for _ in range(2):
        for text, size in ((BPE(400), 260), (Words(vocab_size=9), 7)):
            notes = prepare(data, text, Bucketed(64), cache=tmp_path / "c" if cache else None).notes
            assert [note.split(":")[0] for note in notes] == [
                f"tokenizer.vocab_size is {text.vocab_size}, but the training text gives only {size} tokens"
            ]
    assert prepare(data, Words(vocab_size=7), Bucketed(64)).notes == ()


def test_labels_and_tags(write: Write) -> None:
    rows = write("a.tsv", "good\ta b\nbad\tc d\n" * 5)
    prepared = prepare(LabelledLines(train=rows), Words(), Bucketed(64))
    assert prepared.labels == ("bad", "good")
    assert prepared.train.batch(0).targets_NU.shape == (10, 1)
    tagged = prepare(TaggedLines(train=write("b.tsv", "dogs bark\tN V\n" * 3)), Words(), Bucketed(64))
    assert tagged.labels == ("N", "V")
    assert tagged.train.batch(0).targets_NU.tolist() == [[0, 1]] * 3


@dataclass(frozen=True, kw_only=True)
class Counting(HeldOut):
    """Data that is made, not read, and brings its vocabulary."""

    size: int

    row_format = Texts()

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        for number in range(self.size):
            advance(1)
            yield ("one two three four".rsplit(" ", number % 3)[0],)

    def new_tokenizer(self) -> Tokenizer:
        return train_words(["one two three four"])


def test_a_label_of_the_validation_alone_is_said_with_its_file_and_line(write: Write) -> None:
    train, tags = write("a.tsv", "good\ta b\nbad\tb\n"), write("b.tsv", "a b\tN V\nb\tV\n")
    valid, other = write("av.tsv", "bad\ta\n\ngoood\tb\n"), write("bv.tsv", "a b\tN N\na b a\tV N X\n")
    with pytest.raises(ValueError, match=r"av\.tsv, line 3: 'goood' is not a known label .* mean 'good'"):
        prepare(LabelledLines(train=train, valid=valid), Words(), Bucketed(tokens=9))
    with pytest.raises(ValueError, match=r"bv\.tsv, line 2: 'X' is not a known label of the training data"):
        prepare(TaggedLines(train=tags, valid=other), Words(), Bucketed(tokens=9))


@pytest.mark.parametrize("cached", [False, True])
def test_tags_of_words_of_several_tokens_are_kept(write: Write, tmp_path: Path, cached: bool) -> None:
    data = TaggedLines(train=write("b.tsv", "unheard of\tADJ ADP\nof\tADP\n"), valid_lines=1)
    cache = tmp_path / "cache" if cached else None
    for _ in range(1 + cached):
        prepared = prepare(data, BPE(vocab_size=270, min_count=2), Bucketed(tokens=64), cache=cache)
        (valid,) = prepared.valid
        batches = [prepared.train.batch(0), valid]
        assert sorted(batch.weight for batch in batches) == [1, 2]
        assert all(int(batch.inputs_NT.shape[1]) > batch.weight for batch in batches)
        assert {label for it in batches for label in it.targets_NU[it.weights_NU > 0].tolist()} <= {0, 1}


def test_data_may_be_made_and_bring_its_vocabulary(tmp_path: Path) -> None:
    prepared = prepare(Counting(size=6, valid_lines=1), None, Bucketed(64), cache=tmp_path, progress=True)
    assert (prepared.tokenizer.vocab_size, prepared.facts["train_examples"]) == (8, 5)


def test_a_language_keeps_its_own_ids_and_a_task_learns_them() -> None:
    made = LanguageData(train=30, valid=5, language={"kind": "zipf_markov", "word_count": 20})
    prepared = prepare(made, None, Bucketed(256))
    assert prepared.tokenizer.vocab_size == made.known.vocab_size == 24
    for row in prepared.train.batch(0).targets_NU.tolist():
        assert made.known.log_prob([token for token in row if token > 2]) > -math.inf
    assert prepared.facts["valid_examples"] == 5
    pairs = prepare(
        TaskData(train=20, valid=3, task={"kind": "copy"}), Characters(), Bucketed(256)
    ).train.batch(0)
    assert pairs.source_NS is not None
    assert torch.equal(pairs.source_NS, pairs.targets_NU)


def test_without_a_vocabulary_it_says_so(write: Write) -> None:
    with pytest.raises(ValueError, match="Lines brings no vocabulary"):
        prepare(Lines(train=write("a.txt", "a b\n")), None, Bucketed(64))


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", r"a\.txt is empty"),
        ("\n \n", "every row of the training data is empty"),
        (b"a b\nc \xff\n", "line 2 is not valid UTF-8"),
        ("a a\na\n", "the vocabulary has one word, 'a'"),
        ("x " * 600_000 + "\n", "line 1 is longer than 1,000,000 bytes"),
        ("a b\n" + "c " * 100 + "\n", "1 of 2 training examples are longer than 64 tokens"),
    ],
)
def test_bad_data_is_said_before_anything_is_trained(
    write: Write, tmp_path: Path, content: str | bytes, said: str, cache: bool
) -> None:
    data = Lines(train=write("a.txt", content))
    with pytest.raises(ValueError, match=said):
        prepare(data, Words(), Bucketed(64), cache=tmp_path / "cache" if cache else None)


def test_invalid_validation_data_is_refused(write: Write) -> None:
    train = write("a.txt", "a b\n")
    with pytest.raises(ValueError, match="every row of the validation data is empty"):
        prepare(Lines(train=train, valid=write("v.txt", "\n")), Words(), Bucketed(64))
    with pytest.raises(ValueError, match="remove valid_share"):
        prepare(Lines(train=train, valid=train, valid_lines=1), Words(), Bucketed(64))
    with pytest.raises(FileNotFoundError, match=r"valid = '.*none\.txt': there is no such file"):
        prepare(Lines(train=train, valid=train.replace("a.txt", "none.txt")), Words(), Bucketed(64))


def test_a_recipe_is_enough(write: Write) -> None:
    data = choose(DATA, {"kind": "tsv", "train": write("a.tsv", "a b\tx y\nc\tz\n")}, "data")
    text = choose(TOKENIZER_CONFIGS, {"kind": "words"}, "tokenizer")
    batches = choose(BATCHES, {"kind": "bucketed", "tokens": 32}, "batches")
    assert spoken(prepare(data, text, batches)) == ["x y", "z"]


def test_a_large_file_is_never_in_memory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_store, "_BUFFERED", 1 << 14)
    monkeypatch.setattr("unspool.data.encoded_store._ROWS", 64)
    lines, length = 3000, 250
    names = [f"word{at:04d}" for at in range(1000)]
    line = " ".join(Random(0).choices(names, k=length)) + "\n"
    path = write("a.txt", line * lines)
    assert Path(path).stat().st_size > 6_000_000
    codec = train_words([" ".join(names)])
    data = Lines(train=path, valid_lines=10)
    tracemalloc.start()
    try:
        for batches in (Bucketed(1024), Packed(4, 128)):
            prepared = prepare(data, codec, batches, cache=tmp_path / "cache")
            for number in range(0, prepared.train.per_epoch, 50):
                prepared.train.batch(number)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert prepared.facts["train_tokens"] == (lines - 10) * length
    # The file has 7 MB and its tokens 1.5 MB; a few pieces and arrays of one number a line are all that is held.
    assert peak < 1_000_000


@pytest.mark.parametrize("cache", [False, True])
def test_sources_and_targets_may_have_vocabularies_of_their_own(
    write: Write, tmp_path: Path, cache: bool
) -> None:
    sources = "".join(f"s{at} {'x' * (at % 3 + 1)}\n" for at in range(300))
    data = Parallel(source=write("a", sources), target=write("b", "ab\nba\nc\n" * 100), valid_lines=9)
    text = Separate({"kind": "words"}, {"kind": "characters"})
    for _ in range(2):
        prepared = prepare(data, text, Bucketed(64), cache=tmp_path / "c" if cache else None)
        source = prepared.tokenizer.source
        assert source is not None
        assert (prepared.facts["vocab_size"], prepared.facts["source_vocab_size"]) == (7, source.vocab_size)
        assert source.vocab_size > 290
        pairs = set()
        for number in range(prepared.train.per_epoch):
            batch = prepared.train.batch(number)
            assert batch.source_NS is not None
            for row, target in zip(batch.source_NS.tolist(), batch.targets_NU.tolist(), strict=True):
                pairs.add((source.decode(row), prepared.tokenizer.decode(target)))
        whole = set(zip(sources.splitlines(), ["ab", "ba", "c"] * 100, strict=True))
        assert pairs < whole
        assert len(pairs) == 291


def test_a_side_that_stays_small_is_said_and_single_texts_have_no_sides(write: Write) -> None:
    path = write("a", "a b\nb c\n")
    text = Separate({"kind": "words", "vocab_size": 50}, {"kind": "characters"})
    notes = prepare(Parallel(source=path, target=path), text, Bucketed(64)).notes
    assert [note.split(",")[0] for note in notes] == ["tokenizer.source.vocab_size is 50"]
    with pytest.raises(ValueError, match="needs pairs of source and target"):
        prepare(Lines(train=path), text, Bucketed(64))
