import numpy as np
import pytest

from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.search import Greedy, Sample
from unspool.decode.spec import parse
from unspool.decode.transforms import MinP, Temperature, TopK, TopP


@pytest.mark.parametrize(
    "search",
    [
        Greedy(),
        Sample(),
        Sample(Temperature(0.8), TopP(0.9)),
        Sample(TopK(40), MinP(0.05), ArgMax()),
        Sample(BasisAware(0.1, rank=None)),
        Sample(BasisAware.eta(0.02)),
        Sample(BasisAware(0.1, rank=np.int64(8), retries=np.int32(7))),
    ],
)
def test_what_repr_prints_parse_reads(search):
    assert parse(repr(search)) == search


def test_a_bare_name_is_a_call_without_arguments():
    assert parse(" Greedy ") == Greedy()


def test_other_constructors_have_a_dot():
    assert parse("Sample(BasisAware.eta(0.02, rank=8))") == Sample(BasisAware.eta(0.02, rank=8))
    assert parse("Sample(BasisAware.nucleus(0.9))") == Sample(BasisAware.nucleus(0.9))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("Sampel()", r"'Sampel' is unknown. Did you mean Sample\?"),
        ("TopP(0.9)", r"not a search: wrap it, as in Sample\(TopP\(0.9\)\)"),
        ("Sample(TopP(0.9)", "is not a decoder"),
        ("", "is not a decoder"),
        ("Sample(TopP(p=0.9, q=1))", "unexpected keyword argument 'q'"),
        ("Sample(TopP(1.5))", "1.5"),
        ("Sample(*x)", r"\* and \*\*"),
        ("__import__('os').system('true')", "is unknown"),
        ("Sample(BasisAware.eat(0.02))", r"Did you mean BasisAware.eta\?"),
        ("Sample(TopP.__class__)", "neither a technique"),
        ("Sample(TopP(open('x')))", "'open' is unknown"),
        ("Sample(Temperature(nan))", "Temperature.t is nan, but must be a finite number"),
        ("Sample(Temperature(inf))", "Temperature.t is inf, but must be a finite number"),
        ("Sample(Temperature(-inf))", "Temperature.t is -inf, but must be a finite number"),
        ("nan", "'nan' is not a search"),
        ("Speculative(TopP(0.9))", "cannot be written as text, for it holds a second model: --draft MODEL"),
        ("Contrast()", "cannot be written as text, for it is a model made of two: --weak MODEL"),
        ("Ensemble", r"Ensemble\(\(a, b\)\)"),
        ("EarlyExit()", r"EarlyExit\(model\)"),
        ("Sample(" * 1000 + ")" * 1000, "is not a decoder"),
        ("-" * 10_000 + "1", "is not a decoder|neither a technique"),
    ],
)
def test_bad_specs_are_named(spec, message):
    with pytest.raises(ValueError, match=message):
        parse(spec)
