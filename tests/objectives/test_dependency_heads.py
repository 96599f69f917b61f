import math

import pytest
import torch

from unspool.interfaces import Clock
from unspool.models.transformer_lm import TransformerConfig
from unspool.objectives.attention_losses import DependencyHeads, arc_cost, pad_rows
from unspool.tokenization.vocabulary import train_characters

CLOCK = Clock(0, 1)
ROWS = (
    "# text = ab c d\n1\tab\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tc\t_\t_\t_\t_\t0\troot\t_\t_\n3\td\t_\t_\t_\t_\t2\tobj\t_\t_\n\n"
    "# text = d c ab\n1\td\t_\t_\t_\t_\t3\tobj\t_\t_\n2\tc\t_\t_\t_\t_\t3\tnsubj\t_\t_\n3\tab\t_\t_\t_\t_\t0\troot\t_\t_\n"
)


@pytest.fixture
def bank(tmp_path):
    (tmp_path / "bank.conllu").write_text(ROWS)
    return str(tmp_path / "bank.conllu")


def make(layers=2, **options):
    torch.manual_seed(0)
    shape = {
        "width": 16,
        "heads": 2,
        "inner_width": 16,
        "positions": "sinusoidal",
        "layers": layers,
        **options,
    }
    text = train_characters(["ab c d"])
    return TransformerConfig(vocab_size=text.vocab_size, **shape).build(text)


def test_cost_by_hand():
    alpha = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    assert arc_cost(alpha, [(1, 0)]).tolist() == pytest.approx([math.log(4)])
    assert torch.isfinite(arc_cost(alpha, [(0, 1)])).all()


def test_heads_learn_their_labels(bank):
    model, batch = make(), pad_rows([(1, 4, 5)])
    batch.weights_NU.fill_(1.0)
    objective = DependencyHeads(bank, ("nsubj", "obj"), layer=1)
    objective.check(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    costs = []
    for _ in range(80):
        found = objective(model, batch, CLOCK)
        costs.append(found.total.item() / found.weight)
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
    assert costs[0] > 0.5
    assert costs[-1] < 0.1
    assert found.stats == {"dependency_heads": pytest.approx(found.total.item())}


def test_other_layers_above_learn_nothing(bank):
    model, batch = make(), pad_rows([(1, 4, 5)])
    batch.weights_NU.fill_(1.0)
    DependencyHeads(bank, ("nsubj",), layer=0)(model, batch, CLOCK).total.backward()
    assert model.blocks[0].attention.qkv.weight.grad.abs().sum() > 0
    assert model.blocks[1].attention.qkv.weight.grad is None


def test_sentences_follow_the_dice_of_torch(bank):
    model, batch, objective = make(), pad_rows([(1, 4, 5)]), DependencyHeads(bank, rows=2)
    batch.weights_NU.fill_(1.0)

    def cost(seed):
        torch.manual_seed(seed)
        return objective(model, batch, CLOCK).total.item()

    assert cost(1) == cost(1)
    assert len({cost(seed) for seed in range(6)}) > 1


def test_what_cannot_be_taught_is_refused(bank, lstm, translator, transformer):
    with pytest.raises(ValueError, match="needs a Transformer"):
        DependencyHeads(bank).check(lstm)
    for model in (translator(), transformer()):
        with pytest.raises(ValueError, match="tagger or classifier"):
            DependencyHeads(bank).check(model)
    for wrong in ({"layer": 2}, {"labels": ("a", "b", "c")}):
        with pytest.raises(ValueError, match=r"do not fit a model of 2 layers \(from 0\) with 2 heads"):
            DependencyHeads(bank, **wrong).check(make())
    with pytest.raises(ValueError, match="has no arc with a label of iobj"):
        DependencyHeads(bank, ("iobj",)).check(make())
    with pytest.raises(FileNotFoundError, match=r"treebank 'nowhere\.conllu' does not exist"):
        DependencyHeads("nowhere.conllu").check(make())
    for wrong in ({"labels": ()}, {"labels": ("a", "a")}, {"layer": -1}, {"rows": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DependencyHeads(bank, **wrong)
