import math

import pytest
from pydantic import ValidationError

from unspool.decode.hypothesis import Job, Ranked
from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError, error_record
from unspool.serve.requests import CompletionRequest
from unspool.serve.response_builders import ChatBuilder, CompletionBuilder, StartedGeneration, join_pieces
from unspool.serve.response_models import Completion, ErrorResponse
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


def test_pieces_of_a_text_are_joined():
    whole = join_pieces([PIECE, Piece("c", (2,), 0, 0, "eos", (-1.5,), (), (Ranked((), ()),))])
    assert (whole.text, whole.tokens, whole.finish_reason) == ("abc", (0, 1, 2), "eos")
    assert whole.logps[1:] == (-0.5, -1.5)
    assert len(whole.ranked) == 3


def builder_of(kind, tokenizer=None, alternatives=None, prompt=(0,)):
    options = {"include_usage": True}
    builder = kind(
        CompletionRequest(model="m", prompt="a", stream_options=options), tokenizer, alternatives, echo=False
    )
    builder.start(StartedGeneration(Job((prompt,), (9,), (0,), is_encoder_decoder=prompt == (0,))))
    return builder


def test_logprobs_of_both_kinds():
    old = builder_of(CompletionBuilder)._logprobs(Letters(), PIECE, 1, [4, 5])
    assert old == {
        "tokens": ["a", "b"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"c": -0.25, "b": -0.5}],
        "text_offset": [4, 5],
    }
    new = builder_of(ChatBuilder)._logprobs(Letters(), PIECE, 2, [])["content"]
    assert new[1]["bytes"] == [201]  # a part of a character: the token itself cannot show it
    assert new[1]["top_logprobs"][0]["bytes"] == [99]
    assert [entry["token"] for entry in new[1]["top_logprobs"]] == ["c", "b"]


def test_chunks_of_a_response_have_its_id():
    builder = builder_of(ChatBuilder, prompt=(1, 2))
    builder.new_tokens = 3
    whole, (chunk,), (last,) = builder.response(), builder.chunks(PIECE), builder.closing()
    assert whole["id"] == chunk["id"] == last["id"]
    assert (whole["object"], chunk["object"]) == ("chat.completion", "chat.completion.chunk")
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5} == last["usage"]
    assert "usage" not in chunk


def test_responses_have_the_documented_fields():
    builder = builder_of(CompletionBuilder)
    builder.add(PIECE)
    whole = builder.response()
    assert Completion.model_validate(whole).choices[0].text == "ab"
    with pytest.raises(ValidationError, match="extra"):
        Completion.model_validate({**whole, "extra": 1})
    assert ErrorResponse.model_validate(error_record(ApiError(404, "no", "model"))).error.param == "model"


TEXT = train_bpe(["ab"], 300)


def test_the_offset_of_a_token_is_the_number_of_complete_characters_before_it():
    tokens = TEXT.encode("aé→b")  # é has two bytes, → three, and each byte is a token here
    assert len(tokens) == 7
    assert builder_of(CompletionBuilder)._offsets(TEXT, (0, 0), tokens) == [0, 1, 1, 2, 2, 2, 3]


def test_offsets_continue_in_the_next_piece():
    builder, tokens = builder_of(CompletionBuilder, prompt=tuple(TEXT.encode("ab"))), TEXT.encode("a→")
    assert [builder._offsets(TEXT, (0, 0), [token]) for token in tokens] == [[0], [1], [1], [1]]
