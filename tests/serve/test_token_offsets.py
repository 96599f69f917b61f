from unspool.serve.responses import TokenOffsets
from unspool.tokenization.vocabulary import train_bpe

TEXT = train_bpe(["ab"], 300)


def test_a_token_begins_behind_the_characters_that_were_whole():
    tokens = TEXT.encode("aé→b")  # é has two bytes, → three, and each byte is a token here
    assert len(tokens) == 7
    assert TokenOffsets(TEXT)(tokens) == [0, 1, 1, 2, 2, 2, 3]


def test_it_goes_on_where_it_was():
    offsets, tokens = TokenOffsets(TEXT, after=TEXT.encode("b")[0]), TEXT.encode("a→")
    assert [offsets([token]) for token in tokens] == [[0], [1], [1], [1]]
