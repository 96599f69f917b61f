"""Every head in every kind of model that speaks, as a recipe asks for it."""

import pytest
import torch

from unspool.data.batch import Batch
from unspool.decode.generate import generate
from unspool.decode.search import Greedy
from unspool.heads import HEADS
from unspool.interfaces import Clock
from unspool.models import config_from_dict
from unspool.models.loading.run_folder import load_folder, save
from unspool.training.recipe import parse_recipe

V, BOS, EOS = 9, 1, 2
TRANSFORMER = {"width": 8, "heads": 2, "inner_width": 12}
LAYERS = {"layers": 1, "kv_heads": 2, "head_width": 4, "context": 32}
MODELS = {
    "rnn_lm": {"width": 8, "cell": "gru"},
    "transformer_lm": TRANSFORMER | LAYERS,
    "rnn_seq2seq": {"width": 8, "bos": BOS, "eos": EOS},
    "transformer_seq2seq": TRANSFORMER | {"encoder_layers": 1, "decoder_layers": 1, "bos": BOS, "eos": EOS},
}
TABLES = [
    {"kind": "softmax"},
    {"kind": "softmax", "tied": False},
    {"kind": "softmax", "tied": True, "bias": True},
    {"kind": "tempered", "learnt": True, "tied": False},
    {"kind": "tempered", "tied": True},
    {"kind": "bilinear", "inner_width": 5},
    {"kind": "bilinear", "tied": True},
    {"kind": "mixture", "experts": 2, "tied": False},
    {"kind": "mixture", "tied": True},
    {"kind": "sigsoftmax", "bias": True, "tied": False},
    {"kind": "sigsoftmax", "tied": True},
    {"kind": "capped", "cap": 2.0, "bias": True, "tied": False},
    {"kind": "capped", "cap": 2.0, "tied": True},
    {"kind": "kerbs", "senses": 1.7},
    {"kind": "kerbs", "senses": 2.0, "kernel": False},
]


def said(table):
    return ", ".join(f"{key}={value}" for key, value in table.items())


@pytest.fixture(params=TABLES, ids=said)
def head(request):
    return request.param


@pytest.fixture(params=MODELS)
def recipe(request, head):
    return parse_recipe(
        {
            "data": {"kind": "tsv" if "seq2seq" in request.param else "lines", "train": "x"},
            "tokenizer": {"kind": "characters"},
            "model": {"kind": request.param, **MODELS[request.param], "head": head},
            "objective": {"kind": "cross_entropy", "smoothing": 0.1},
            "train": {"updates": 1},
        }
    )


@pytest.fixture
def model(recipe):
    torch.manual_seed(0)
    return recipe.model_config(V).build().eval()


def test_every_head_is_here():
    assert {table["kind"] for table in TABLES} == set(HEADS)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("table", [{"kind": "softmax"}, {"kind": "softmax", "bias": True}], ids=said)
def test_a_head_that_does_not_say_is_tied_as_the_model_is(kind, tied, table, tmp_path):
    settings = {"kind": kind, **MODELS[kind], "vocab_size": V, "tied": tied, "head": table}
    model = config_from_dict(settings, "model").build()
    assert (model.output_matrix is model.embed.weight) == tied
    other = config_from_dict({**settings, "head": {**table, "tied": not tied}}, "model").build()
    assert (other.output_matrix is other.embed.weight) == (not tied)
    save(model, tmp_path / "model")
    again = load_folder(tmp_path / "model")
    assert (again.output_matrix is again.embed.weight) == tied


def test_the_loss_reaches_every_weight_that_learns(model, recipe):
    inputs_NT, targets_NT = (
        torch.tensor([[BOS, 3, 4, 8], [BOS, 5, 0, 0]]),
        torch.tensor([[3, 4, 8, 2], [5, 2, 0, 0]]),
    )
    weights_NT = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    source_NS, source_lengths_N = torch.tensor([[6, 7, EOS], [4, EOS, 0]]), torch.tensor([3, 2])
    batch = Batch(inputs_NT, torch.tensor([4, 2]), targets_NT, weights_NT, source_NS, source_lengths_N)
    loss = recipe.objective(model.train(), batch, Clock(0, 1)).total
    assert loss.isfinite()
    loss.backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, name
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_saved_models_load_bit_for_bit(model, tmp_path):
    save(model, tmp_path / "run")
    found = load_folder(tmp_path / "run")
    assert found.config == model.config
    mine, theirs = model.state_dict(), found.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    learns = {name: it.requires_grad for name, it in model.named_parameters()}
    assert {name: it.requires_grad for name, it in found.named_parameters()} == learns
    ours, _ = model.start([[3, 4], [5]])
    again, _ = found.start([[3, 4], [5]])
    # Not bit for bit: mapped weights lie elsewhere in memory, and products add up in another order.
    torch.testing.assert_close(ours.logp_NV, again.logp_NV, atol=1e-6, rtol=0)


def test_greedy_says_the_most_probable_tokens_of_one_parallel_pass(model, recipe):
    prompt = [3, 4, 6]
    tokens = list(generate(model, prompt, Greedy(), max_new_tokens=6).tokens)
    assert tokens
    with torch.no_grad():
        if "seq2seq" in recipe.model["kind"]:
            source = torch.tensor([[*prompt, EOS]])
            so_far = torch.tensor([[BOS, *tokens[:-1]]])
            logp_TV = model(source, torch.tensor([4]), so_far)[0]
        else:
            logp_TV = model(torch.tensor([[*prompt, *tokens[:-1]]]))[0, len(prompt) - 1 :]
    assert logp_TV.argmax(-1).tolist() == tokens
    torch.testing.assert_close(logp_TV.exp().sum(-1), torch.ones(len(tokens)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_normalised_and_says_nearly_the_same(model, dtype):
    want, _ = model.start([[3, 4], [5]])
    half, state = model.to(dtype).start([[3, 4], [5]])
    for _ in range(2):
        assert half.logp_NV.dtype == torch.float32
        torch.testing.assert_close(half.logp_NV.exp().sum(-1), torch.ones(2))
        half, state = model.step(state, torch.tensor([6, 7]))
    torch.testing.assert_close(model.start([[3, 4], [5]])[0].logp_NV, want.logp_NV, atol=0.1, rtol=0.0)
