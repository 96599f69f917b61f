import pytest

from unspool.decode.hypothesis import Job
from unspool.decode.output import Piece
from unspool.serve.requests import CompletionRequest
from unspool.serve.responses import CHAT, COMPLETION
from unspool.serve.streaming import Begun, GrowingAnswer
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcd"])
A, B, C, D = TEXT.encode("abcd")
PIECES = (
    Piece("a", (A,), 0, 0, None, (-1.0,)),
    Piece("b", (B,), 0, 1, None, (-3.0,)),
    Piece("c", (C,), 0, 0, "eos", (-2.0,)),
    Piece("d", (D,), 0, 1, "length", (-3.0,)),
)


@pytest.fixture
def begun(job_of):
    return Begun(job_of([[A, B]]), ())


@pytest.fixture
def job_of():
    def make(prompts):
        count = len(prompts)
        return Job(tuple(map(tuple, prompts)), (9,) * count, (0,) * count)

    return make


def answer(n=2, form=COMPLETION, alternatives=None, echo=False):
    body = CompletionRequest(model="m", prompt="ab", n=n)
    return GrowingAnswer(form, body, TEXT, alternatives, echo=echo)


def test_the_whole_is_its_pieces_in_order(begun):
    growing = answer()
    for piece in PIECES:
        growing.add(piece)
    choices = growing.whole(begun)["choices"]
    assert [(it["index"], it["text"], it["finish_reason"]) for it in choices] == [
        (0, "ac", "stop"),
        (1, "bd", "length"),
    ]


def test_the_best_of_several_has_the_highest_mean(begun):
    growing = answer(n=1)
    for piece in PIECES:
        growing.add(piece)
    assert [it["text"] for it in growing.whole(begun)["choices"]] == ["ac"]  # −1.5 a token against −3


def test_chunks_are_the_same_text_and_only_the_first_names_its_role():
    growing = answer(form=CHAT)
    chunks = [growing.chunk(piece)["choices"][0] for piece in PIECES]
    assert [(it["index"], it["delta"]["content"]) for it in chunks] == [
        (0, "a"),
        (1, "b"),
        (0, "c"),
        (1, "d"),
    ]
    assert ["role" in it["delta"] for it in chunks] == [True, True, False, False]


def test_an_echo_comes_first_and_moves_the_offsets(begun):
    growing = answer(n=1, alternatives=0, echo=True)
    scored = Piece("ab", (A, B), 0, 0, None, (float("nan"), -1.0))
    begun = Begun(begun.job, (scored,))
    (echo,) = growing.echoed(begun)
    assert echo["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert echo["choices"][0]["text"] == "ab"
    assert growing.chunk(PIECES[0])["choices"][0]["logprobs"]["text_offset"] == [2]
    assert growing.chunk(PIECES[2])["choices"][0]["logprobs"]["text_offset"] == [3]
    whole = answer(n=1, alternatives=0, echo=True)
    whole.add(PIECES[0])
    (choice,) = whole.whole(begun)["choices"]
    assert choice["text"] == "aba"
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def test_log_probabilities_are_told_only_where_asked_for(begun):
    for alternatives, told in ((None, None), (0, [-1.0])):
        growing = answer(n=1, alternatives=alternatives)
        logprobs = growing.chunk(PIECES[0])["choices"][0]["logprobs"]
        assert (logprobs and logprobs["token_logprobs"]) == told
