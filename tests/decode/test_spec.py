import ast
import gc
import inspect
import sys
import threading
import time

import numpy as np
import pytest

from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.search import Greedy, PromptLookup, Sample, Speculative
from unspool.decode.spec import TECHNIQUES, _evaluate, parse
from unspool.decode.transforms import MinP, Temperature, TopK, TopP


@pytest.mark.parametrize(
    "decoder",
    [
        Greedy(),
        Sample(),
        Sample(Temperature(0.8), TopP(0.9)),
        Sample(TopK(40), MinP(0.05), ArgMax()),
        Sample(BasisAware(0.1, rank=None)),
        Sample(BasisAware.eta(0.02)),
        Sample(BasisAware(0.1, rank=np.int64(8), retries=np.int32(7), budget=np.int64(10**9))),
        Sample(BasisAware(0.1, budget=None)),
    ],
)
def test_what_repr_prints_parse_reads(decoder):
    assert parse(repr(decoder)) == decoder


@pytest.mark.parametrize(
    "technique", [name for name in TECHNIQUES if name not in ("Grammar", "Sum", "TokenF1")]
)
def test_numbers_of_numpy_are_read_again(technique):
    made = TECHNIQUES[technique]
    parameters = inspect.signature(made).parameters.values()
    given = {
        p.name: {"float": np.float32(0.5), "int": np.int64(2), "int | None": np.int16(2)}[p.annotation]
        for p in parameters
        if p.annotation in ("float", "int", "int | None")
    }
    needed = {
        "BadWords": [[np.array([2, 3])]],
        "DRY": [np.float32(0.5), np.float32(1.5), np.int64(2)],
        "ConstrainedBeam": [np.int64(2), [np.array([2])]],
    }
    needed |= {
        "QuadraticSmoothing": [np.float32(0.5)],
        "LogitBias": [{np.int64(2): np.float32(0.5)}],
        "SequenceBias": [{(np.int64(2),): np.float32(0.5)}],
    }
    args = needed.get(technique, [])
    rule = made(*args, **{name: value for name, value in given.items() if not args})
    assert "np." not in repr(rule)
    assert repr(_made(repr(rule))) == repr(rule)


def _made(spec):
    return _evaluate(ast.parse(spec, mode="eval").body, spec)


def test_a_bare_name_is_a_call_without_arguments():
    assert parse(" Greedy ") == Greedy()


def test_other_constructors_have_a_dot():
    assert parse("Sample(BasisAware.eta(0.02, rank=8))") == Sample(BasisAware.eta(0.02, rank=8))
    assert parse("Sample(BasisAware.nucleus(0.9))") == Sample(BasisAware.nucleus(0.9))


def test_speculative_decoding_without_a_model_is_a_string():
    decoder = Speculative(PromptLookup(4), TopP(0.9), length=8)
    assert parse("Speculative(PromptLookup(4), TopP(0.9), length=8)") == parse(repr(decoder)) == decoder
    assert parse("Speculative(PromptLookup)") == Speculative(PromptLookup())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("Sampel()", r"unknown decoder 'Sampel': did you mean 'Sample'"),
        ("TopQ(0.9)", r"^unknown decoder 'TopQ': did you mean 'TopP', 'TopK' or 'TopH'\?$"),
        ("TopP(0.9)", r"only a part of a decoder: write Sample\(TopP\(0.9\)\)"),
        ("Sample(TopP(0.9)", "is not a decoder"),
        ("", "is not a decoder"),
        ("Sample(TopP(p=0.9, q=1))", "TopP has no option 'q': choose from p$"),
        ("Sample(top_p=0.9)", r"Sample has no option 'top_p': give transforms, as in Sample\(Temp"),
        ("Beam(0)", "^width is 0, but must be a whole number"),
        ("Sample(TopP(1.5))", "1.5"),
        ("Sample(*x)", r"may not contain \* or \*\*"),
        ("__import__('os').system('true')", "unknown decoder"),
        ("Sample(BasisAware.eat(0.02))", r"did you mean 'BasisAware.eta'"),
        ("Sample(TopP.__class__)", "neither a technique"),
        ("Sample(TopP(open('x')))", "unknown decoder 'open'"),
        ("Sample(Temperature(nan))", "Temperature.t is nan, but must be a finite number"),
        ("Sample(Temperature(inf))", "Temperature.t is inf, but must be a finite number"),
        ("Sample(Temperature(-inf))", "Temperature.t is -inf, but must be a finite number"),
        ("nan", "'nan' is only a part of a decoder"),
        ("Speculative(TopP(0.9))", "contains a model and cannot be a string: write --draft MODEL"),
        ("Contrast()", "contains a model and cannot be a string: write --weak MODEL"),
        ("Ensemble", r"Ensemble\(\(a, b\)\)"),
        ("EarlyExit()", r"EarlyExit\(model\)"),
        ("Sample(" * 1000 + ")" * 1000, "is not a decoder"),
        ("-" * 10_000 + "1", "is not a decoder|neither a technique"),
    ],
)
def test_bad_specs_are_named(spec, message):
    with pytest.raises(ValueError, match=message):
        parse(spec)


@pytest.mark.parametrize("spec", [None, 1, b"Greedy", Greedy, Greedy()])
def test_a_value_that_is_not_a_string_is_refused(spec):
    with pytest.raises(TypeError, match=r"the decoder is .*, but must be a string"):
        parse(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "Sample(" * 3000 + ")" * 3000,
        "Sample" + ".a" * 3000,
        "Sample" + ".a" * 3000 + "()",
        "Sample(TopK(" + "1+" * 3000 + "1))",
        "Sample(" + "-" * 3000 + "inf)",
        "Sample(" + "not " * 2000 + "x)",
    ],
)
def test_a_decoder_that_is_nested_too_deeply_is_a_value_error(spec):
    with pytest.raises(ValueError, match=r"is not a decoder|is neither a technique nor a plain value"):
        parse(spec)


def test_threads_parse_at_the_same_time():
    """The collector runs finalizers while Python builds a syntax tree, and so another thread."""
    failures = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            time.sleep(0)

    def work():
        for _ in range(100):
            for _ in range(5):
                Cycle()
            try:
                parse(text)
            except SystemError as error:
                failures.append(error)

    text = f"Sample({', '.join(['TopP(0.9)', 'Temperature(0.7)', 'TopK(5)'] * 6)})"
    parse(text)
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(7)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert not failures
