import math

import pytest
from pydantic import ValidationError

from unspool.decode.hypothesis import Ranked
from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError, error_record
from unspool.serve.responses import (
    CHAT,
    COMPLETION,
    Choice,
    Completion,
    Envelope,
    ErrorResponse,
    TokenOffsets,
    chat_logprobs,
    completion_logprobs,
    usage,
)
from unspool.tokenization.vocabulary import train_bpe

PIECE = Piece(
    "ab", (0, 1), 0, 0, None, (math.nan, -0.5), (), (Ranked((), ()), Ranked(((2, -0.25), (1, -0.5)), ()))
)


class Letters:
    """A tokenizer of three letters; the last one is a special token."""

    def show(self, token):
        return "abc"[token]

    def piece(self, token):
        return None if token == 2 else bytes([200 + token])


def test_a_choice_grows():
    choice = Choice()
    choice.add(PIECE)
    choice.add(Piece("c", (2,), 0, 0, "eos", (-1.5,)))
    assert (choice.text, choice.tokens, choice.finish_reason) == ("abc", [0, 1, 2], "eos")
    assert Choice(logps=[-0.5, -1.5]).mean_logp == -1


def test_logprobs_of_both_kinds():
    old = completion_logprobs(Letters(), PIECE, 1, [4, 5])
    assert old == {
        "tokens": ["a", "b"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"c": -0.25, "b": -0.5}],
        "text_offset": [4, 5],
    }
    new = chat_logprobs(Letters(), PIECE, 2)["content"]
    assert new[1]["bytes"] == [201]  # a part of a character: the token itself cannot show it
    assert new[1]["top_logprobs"][0]["bytes"] == [99]
    assert [entry["token"] for entry in new[1]["top_logprobs"]] == ["c", "b"]


def test_chunks_of_an_answer_have_one_name():
    envelope = Envelope(CHAT, "m")
    whole, chunk = envelope.response([], usage([[1, 2]], 3)), envelope.chunk([])
    assert whole["id"] == chunk["id"]
    assert (whole["object"], chunk["object"]) == ("chat.completion", "chat.completion.chunk")
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert "usage" not in chunk


CHOICE = {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}


def test_what_is_told_is_what_is_written_here():
    whole = Envelope(COMPLETION, "m").response([CHOICE], usage([[1]], 1))
    assert Completion.model_validate(whole).choices[0].text == "a"
    with pytest.raises(ValidationError, match="extra"):
        Completion.model_validate({**whole, "extra": 1})
    assert ErrorResponse.model_validate(error_record(ApiError(404, "no", "model"))).error.param == "model"


TEXT = train_bpe(["ab"], 300)


def test_a_token_begins_behind_the_characters_that_were_whole():
    tokens = TEXT.encode("aé→b")  # é has two bytes, → three, and each byte is a token here
    assert len(tokens) == 7
    assert TokenOffsets(TEXT)(tokens) == [0, 1, 1, 2, 2, 2, 3]


def test_it_goes_on_where_it_was():
    offsets, tokens = TokenOffsets(TEXT, after=TEXT.encode("b")[0]), TEXT.encode("a→")
    assert [offsets([token]) for token in tokens] == [[0], [1], [1], [1]]
