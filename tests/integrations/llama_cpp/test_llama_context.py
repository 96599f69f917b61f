import torch

from unspool.integrations.llama_cpp import MAX_BATCH_TOKENS, LlamaContext


class Library:
    """What a context asks of llama.cpp, written down."""

    def __init__(self, status=0):
        self.told, self.status = [], status

    def __getattr__(self, name):
        def call(*arguments):
            self.told.append((name, *arguments[1:]))
            return {"llama_init_from_model": "context"}.get(name, self)

        return call

    def llama_context_default_params(self):
        return Library()

    def llama_batch_init(self, *sizes):
        return None


def test_sequences_are_shared_and_forgotten_by_their_numbers():
    library = Library()
    context = LlamaContext(library, "model", 512, 1, 5)
    context.copy(3, 4)
    context.drop(3)
    context.drop(4, 7)
    context.clear()
    names = ("llama_memory_seq_cp", "llama_memory_seq_rm", "llama_memory_clear")
    assert [it for it in library.told if it[0] in names] == [
        ("llama_memory_seq_cp", 3, 4, -1, -1),
        ("llama_memory_seq_rm", 3, -1, -1),
        ("llama_memory_seq_rm", 4, 7, -1),
        ("llama_memory_clear", False),
    ]


def test_long_prompts_are_read_in_several_calls(monkeypatch):
    context = LlamaContext(Library(), "model", 512, 1, 5)
    sizes = []

    def decode(tokens):
        sizes.append(len(tokens))
        return torch.full((sum(asked for *_, asked in tokens), 5), float(len(sizes)))

    monkeypatch.setattr(context, "_decode", decode)
    tokens = [(1, place, 0, place in (3, MAX_BATCH_TOKENS + 9)) for place in range(MAX_BATCH_TOKENS + 10)]
    assert context.decode(tokens)[:, 0].tolist() == [1.0, 2.0]
    assert sizes == [MAX_BATCH_TOKENS, 10]
