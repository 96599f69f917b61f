from dataclasses import replace

import pytest

from unspool.decode.generate import generate, stream
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.output import Piece, output_of, pieces_of
from unspool.decode.search import Beam, Greedy
from unspool.testing import bigram

JOB = Job(prompts=((0,),), limits=(5,), seeds=(7,))
PATH = Hypothesis(
    0, 0, (0,), (1, 2), (-1.0, -2.0), (-0.5, -1.5), "length", total=-3.0, notes={"tree": (), "rounds": 4}
)


def test_an_output_is_a_finished_path_in_the_words_of_users():
    out = output_of(PATH, JOB, None)
    assert (out.text, out.tokens, out.logps, out.scores) == ("", (1, 2), (-1.0, -2.0), (-0.5, -1.5))
    assert (out.finish_reason, out.seed, out.total, out.tree, out.loop) == ("length", 7, -3.0, (), None)
    assert out.stats == {"rounds": 4}


def test_a_path_that_has_not_ended_is_a_bug_of_its_search():
    with pytest.raises(RuntimeError, match="bug of that search"):
        output_of(replace(PATH, finish_reason=None), JOB, None)


def test_pieces_are_what_is_new_on_each_frontier():
    one = replace(PATH, tokens=(1,), logps=(-1.0,), scores=(-0.5,), finish_reason=None)
    frontiers = [SearchStep((one,)), SearchStep((), (PATH,))]
    first, second = (
        Piece("", (1,), 0, 0, None, (-1.0,), (-0.5,)),
        Piece("", (2,), 0, 0, "length", (-2.0,), (-1.5,)),
    )
    assert list(pieces_of(iter(frontiers), True, None)) == [first, second]
    (whole,) = pieces_of(iter(frontiers), False, None)
    assert (whole.tokens, whole.finish_reason) == ((1, 2), "length")


@pytest.mark.parametrize("decoder", [Greedy(), Beam(2)])
def test_the_pieces_of_a_text_are_the_text(decoder):
    model = bigram([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])
    out = generate(model, [0], decoder, max_new_tokens=6)
    pieces = list(stream(model, [0], decoder, max_new_tokens=6))
    assert tuple(token for piece in pieces for token in piece.tokens) == out.tokens
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]
