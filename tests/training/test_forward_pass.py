from unspool.interfaces import Clock
from unspool.objectives import CrossEntropy
from unspool.training.forward_pass import ForwardPass


def test_a_forward_pass_is_the_objective_in_one_pass(tiny):
    run = tiny(dropout=0.0)
    batch, clock = run.feed.batch(0), Clock(0, 1)
    total, weight, stats = ForwardPass(run.model)(CrossEntropy(), batch, clock)
    loss = CrossEntropy()(run.model, batch, clock)
    assert (total, weight, stats) == (loss.total, loss.weight, dict(loss.stats))
