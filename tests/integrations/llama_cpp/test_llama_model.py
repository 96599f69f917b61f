"""With the library itself: SmolLM2 by llama.cpp, and by our own engine."""

import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import unspool as us
from unspool.models.loading.model_names import package_file

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "Dear Sir or Madam,\n\nI am writing to complain about",
    "The three most important things to remember when you bake bread are",
    "Q: Why is the sky blue?\nA:",
    "1, 1, 2, 3, 5, 8,",
]


@pytest.fixture(scope="module")
def file(library, tmp_path_factory):
    """SmolLM2 in float32, unpacked by llama.cpp from the file of its package."""
    path = tmp_path_factory.mktemp("llama") / "f32.gguf"
    asked = library.llama_model_quantize_default_params()
    asked.ftype, asked.allow_requantize, asked.nthread = library.LLAMA_FTYPE_ALL_F32, True, 1
    source = str(package_file("smollm2")).encode()
    assert library.llama_model_quantize(source, str(path).encode(), ctypes.byref(asked)) == 0
    return path


@pytest.fixture(scope="module")
def both(file):
    return us.load(file, engine="llama.cpp"), us.load(file)


def test_without_the_library_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"engine='llama.cpp' needs llama-cpp-python: pip install 'unspool\[llama-cpp\]'",
    ):
        us.load("smollm2", engine="llama.cpp")


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("dates", {}, "reads GGUF files, and this is none"),
        ("smollm2", {"weights": "int8"}, "keeps weights as they are stored"),
        ("smollm2", {"dtype": "bfloat16"}, "keeps weights as they are stored"),
    ],
)
def test_what_cannot_be_is_refused(name, asked, message):
    with pytest.raises(ValueError, match=message):
        us.load(name, engine="llama.cpp", **asked)


def test_greedy_texts_are_those_of_our_engine(both):
    theirs, ours = (us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=32) for model in both)
    assert sum(one.text == other.text for one, other in zip(theirs, ours, strict=True)) >= 7
    assert both[0].engine == "llama.cpp"


def test_beams_move_rows_without_copies(both):
    theirs, ours = (us.generate(model, PROMPTS[:2], us.Beam(4), n=2, max_new_tokens=8) for model in both)
    assert [[out.text for out in group] for group in theirs] == [
        [out.text for out in group] for group in ours
    ]


def test_rows_say_the_same_moved_rewound_and_in_a_cache_that_was_too_small(both):
    model, ours = both
    ids = [model.tokenizer.encode(prompt) for prompt in PROMPTS[:2]]
    _, state = model.start(ids)
    state = state.select(torch.tensor([1, 0, 1]))
    _, state = model.extend(state, torch.tensor([[500, 600], [501, 601], [502, 602]]))
    state = model.rewind(state, 1)
    state.context.cells, before = 0, state.context
    state._move(256)
    assert state.context is not before
    step, state = model.step(state, torch.tensor([7, 8, 9]))
    for row, text in enumerate([[*ids[1], 500, 7], [*ids[0], 501, 8], [*ids[1], 502, 9]]):
        want = ours.start([text])[0].logp_NV[0]
        torch.testing.assert_close(
            step.logp_NV[row], want, atol=0.05, rtol=0.01
        )  # its cache is in half precision


def test_basis_aware_sampling_has_the_matrix_of_the_file(both):
    torch.testing.assert_close(both[0].output_matrix, both[1].output_matrix.detach())
    out = us.generate(both[0], PROMPTS[0], us.Sample(us.BasisAware(0.1)), max_new_tokens=6, seed=1)
    assert out.stats["drawn"] >= 6


def test_speculative_decoding_says_what_sampling_says(both):
    texts = [
        us.generate(both[0], PROMPTS[1], search, max_new_tokens=8, seed=1).tokens
        for search in (us.Greedy(), us.Speculative(both[0], us.ArgMax(), length=3))
    ]
    assert texts[0] == texts[1]


def test_every_snippet_of_its_page_runs(library, tmp_path, monkeypatch):
    root = Path(__file__).parents[3]
    spec = importlib.util.spec_from_file_location("documents", root / "tests/project/documents.py")
    documents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documents)
    monkeypatch.chdir(tmp_path)
    namespace, wrong = {"__name__": "page"}, {}
    for snippet, _ in documents.fences((root / "docs/llama-cpp.md").read_text(encoding="utf-8"), "python"):
        wrong |= documents.run_python(snippet, namespace)
    assert wrong == {}
