"""SmolLM2 on llama.cpp against the native engine; contexts and sequences with a fake library."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

import unspool as us
from unspool.integrations.llama_cpp import MAX_BATCH_TOKENS, MAX_SEQUENCES, LlamaContext, LlamaState

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
def both(file):
    return us.load(file, engine="llama.cpp"), us.load(file)


def test_missing_llama_cpp_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"engine='llama.cpp' needs llama-cpp-python: pip install 'unspool\[llama-cpp\]'",
    ):
        us.load("smollm2", engine="llama.cpp")


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("dates", {}, "needs a GGUF file"),
        ("smollm2", {"weights": "int8"}, "always uses stored weights"),
        ("smollm2", {"dtype": "bfloat16"}, "always uses stored weights"),
    ],
)
def test_conflicting_load_arguments_are_rejected(name, params, message):
    with pytest.raises(ValueError, match=message):
        us.load(name, engine="llama.cpp", **params)


def test_greedy_texts_equal_the_native_engine(both):
    llama_cpp_outputs, ours = (us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=32) for model in both)
    assert sum(one.text == other.text for one, other in zip(llama_cpp_outputs, ours, strict=True)) >= 7
    assert both[0].engine == "llama.cpp"


def test_beam_search_equals_the_native_engine(both):
    llama_cpp_outputs, ours = (
        us.generate(model, PROMPTS[:2], us.Beam(4), n=2, max_new_tokens=8) for model in both
    )
    assert [[out.text for out in group] for group in llama_cpp_outputs] == [
        [out.text for out in group] for group in ours
    ]


def test_select_rewind_and_cache_growth_keep_log_probabilities(both):
    model, ours = both
    ids = [model.tokenizer.encode(prompt) for prompt in PROMPTS[:2]]
    _, state = model.start(ids)
    state = state.select(torch.tensor([1, 0, 1]))
    _, state = model.extend(state, torch.tensor([[500, 600], [501, 601], [502, 602]]))
    state = model.rewind(state, 1)
    state.context.cells, before = 0, state.context
    state._grow_cache(256)
    assert state.context is not before
    step, state = model.step(state, torch.tensor([7, 8, 9]))
    for row, text in enumerate([[*ids[1], 500, 7], [*ids[0], 501, 8], [*ids[1], 502, 9]]):
        want = ours.start([text])[0].logp_NV[0]
        torch.testing.assert_close(
            step.logp_NV[row], want, atol=0.05, rtol=0.01
        )  # its cache is in half precision


def test_basis_aware_sampling_uses_the_files_output_matrix(both):
    torch.testing.assert_close(both[0].output_matrix, both[1].output_matrix.detach())
    out = us.generate(both[0], PROMPTS[0], us.Sample(us.BasisAware(0.1)), max_new_tokens=6, seed=1)
    assert out.stats["drawn"] >= 6


def test_speculative_decoding_equals_sampling(both):
    texts = [
        us.generate(both[0], PROMPTS[1], search, max_new_tokens=8, seed=1).tokens
        for search in (us.Greedy(), us.Speculative(both[0], us.ArgMax(), length=3))
    ]
    assert texts[0] == texts[1]


def test_llama_cpp_documentation_runs(library, tmp_path, monkeypatch):
    root = Path(__file__).parents[3]
    spec = importlib.util.spec_from_file_location("documents", root / "tests/project/documents.py")
    documents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documents)
    monkeypatch.chdir(tmp_path)
    namespace, wrong = {"__name__": "page"}, {}
    for snippet, _ in documents.fences((root / "docs/llama-cpp.md").read_text(encoding="utf-8"), "python"):
        wrong |= documents.run_python(snippet, namespace)
    assert wrong == {}


class Library:
    """Records the calls of a context."""

    def __init__(self, status=0):
        self.calls, self.status = [], status

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments[1:]))
            return {"llama_init_from_model": "context"}.get(name, self)

        return call

    def llama_context_default_params(self):
        return Library()

    def llama_batch_init(self, *sizes):
        return None


def test_context_shares_and_removes_sequences():
    library = Library()
    context = LlamaContext(library, "model", 512, 1, 5)
    context.copy(3, 4)
    context.drop(3)
    context.drop(4, 7)
    context.clear()
    names = ("llama_memory_seq_cp", "llama_memory_seq_rm", "llama_memory_clear")
    assert [it for it in library.calls if it[0] in names] == [
        ("llama_memory_seq_cp", 3, 4, -1, -1),
        ("llama_memory_seq_rm", 3, -1, -1),
        ("llama_memory_seq_rm", 4, 7, -1),
        ("llama_memory_clear", False),
    ]


def test_long_prompts_are_decoded_in_several_batches(monkeypatch):
    context = LlamaContext(Library(), "model", 512, 1, 5)
    sizes = []

    def decode(tokens):
        sizes.append(len(tokens))
        return torch.full((sum(params for *_, params in tokens), 5), float(len(sizes)))

    monkeypatch.setattr(context, "_decode", decode)
    tokens = [(1, place, 0, place in (3, MAX_BATCH_TOKENS + 9)) for place in range(MAX_BATCH_TOKENS + 10)]
    assert context.decode(tokens)[:, 0].tolist() == [1.0, 2.0]
    assert sizes == [MAX_BATCH_TOKENS, 10]


class FakeContext:
    """The sequences of a context and the content of each."""

    def __init__(self, sequences):
        self.content, self.copies = {it: it for it in sequences}, 0

    def drop(self, sequence):
        del self.content[sequence]

    def copy(self, source, target):
        assert target not in self.content
        self.content[target] = self.content[source]
        self.copies += 1


def selected(sequences, rows):
    state = LlamaState(None, FakeContext(sequences), sequences, tuple((it,) for it in sequences))
    return state.select(torch.tensor(rows))


def test_reordered_rows_need_no_copies():
    state = selected((4, 7, 2), (2, 0, 1))
    assert state.sequences == (2, 4, 7)
    assert (state.context.copies, state.context.content) == (0, {4: 4, 7: 7, 2: 2})


def test_repeated_rows_share_cells_and_dropped_rows_free_their_sequence():
    state = selected((0, 1, 2), (1, 1, 2))
    assert state.sequences == (1, 0, 2)
    assert state.context.content == {1: 1, 0: 1, 2: 2}


def test_too_many_sequences_are_rejected():
    with pytest.raises(ValueError, match="supports 256 sequences: reduce batch_size"):
        selected((0,), (0,) * (MAX_SEQUENCES + 1))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_select_gives_every_row_its_own_sequence(rows):
    sequences = (3, 9, 1, 0, 7, 5)
    state = selected(sequences, rows)
    assert len(set(state.sequences)) == len(rows)
    assert [state.context.content[it] for it in state.sequences] == [sequences[row] for row in rows]
    assert state.rows == tuple((sequences[row],) for row in rows)
