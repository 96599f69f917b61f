import pickle
from dataclasses import replace

import pytest

from unspool.decode.generate import generate, stream
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.output import Output, Piece, output_of, pieces_of
from unspool.decode.search import Beam, Greedy
from unspool.testing import TableModel, bigram

JOB = Job(prompts=((0,),), limits=(5,), seeds=(7,))
PATH = Hypothesis(
    0, 0, (0,), (1, 2), (-1.0, -2.0), (-0.5, -1.5), "length", total=-3.0, notes={"tree": (), "rounds": 4}
)


def test_an_output_has_the_fields_of_its_hypothesis():
    out = output_of(PATH, JOB, None)
    assert (out.text, out.tokens, out.logps, out.scores) == ("", (1, 2), (-1.0, -2.0), (-0.5, -1.5))
    assert (out.finish_reason, out.seed, out.total, out.tree, out.loop) == ("length", 7, -3.0, (), None)
    assert out.stats == {"rounds": 4}


def test_a_hypothesis_without_finish_reason_is_a_bug_of_its_decoder():
    with pytest.raises(RuntimeError, match="bug of the decoder"):
        output_of(replace(PATH, finish_reason=None), JOB, None)


def test_pieces_hold_the_new_tokens_of_each_step():
    one = replace(PATH, tokens=(1,), logps=(-1.0,), scores=(-0.5,), finish_reason=None)
    steps = [SearchStep((one,)), SearchStep((), (PATH,))]
    first, second = (
        Piece("", (1,), 0, 0, None, (-1.0,), (-0.5,)),
        Piece("", (2,), 0, 0, "length", (-2.0,), (-1.5,)),
    )
    assert list(pieces_of(iter(steps), True, None)) == [first, second]
    (whole,) = pieces_of(iter(steps), False, None)
    assert (whole.tokens, whole.finish_reason) == ((1, 2), "length")


@pytest.mark.parametrize("decoder", [Greedy(), Beam(2)])
def test_the_pieces_of_a_text_are_the_text(decoder):
    model = bigram([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])
    out = generate(model, [0], decoder, max_new_tokens=6)
    pieces = list(stream(model, [0], decoder, max_new_tokens=6))
    assert tuple(token for piece in pieces for token in piece.tokens) == out.tokens
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]


def test_a_piece_prints_its_text():
    assert str(Piece(" a", (1,), 0, 0, None)) == " a"


def test_an_output_prints_its_text_and_has_a_short_repr():
    out = Output("x" * 100, (1, 2), (-1.0, -2.0), (-1.0, -2.0), "length", seed=1)
    assert str(out) == "x" * 100
    assert repr(out) == f"Output('{'x' * 59}…', finish_reason='length', 2 tokens)"


def test_html_colours_tokens_by_surprise_and_escapes_them():
    model = TableModel(lambda row: [0.5, 0.5], tokenizer=Angles())
    out = generate(model, [0], Greedy(), max_new_tokens=2)
    html = out._repr_html_()
    assert html.count("<span") == 2
    assert "&lt;0&amp;" in html
    assert "<0&" not in html
    assert "rgba(255, 120, 0, 0.07)" in html  # −log 0.5 = 0.69 of 10
    assert pickle.loads(pickle.dumps(out)) == out
    assert output_of(PATH, JOB, None)._repr_html_().count("<span") == 2


class Angles:
    """Every token is written like an HTML tag."""

    vocab_size, bos_id, eos_ids, source = 2, None, frozenset(), None

    def show(self, token):
        return f"<{token}&"

    def detokenizer(self, stop=(), after=None):
        return None
