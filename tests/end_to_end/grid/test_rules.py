"""Every transform, pick, ranking rule and utility in every search that takes them, and on every model."""

import inspect
import math

import pytest
import torch

import unspool as us
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import PICKS, TAU_RULES
from unspool.decode.ranking import RANKING
from unspool.decode.search import SEARCHES, UTILITIES
from unspool.decode.search.sampling import bind_transforms
from unspool.decode.transforms import TRANSFORMS, Truncation

EOS = 2
RULES = {
    "AdaptiveP": us.decode.AdaptiveP(0.3),
    "BadWords": us.BadWords([[6], [7, 8]]),
    "DRY": us.DRY(allowed=1),
    "DynamicTemperature": us.decode.DynamicTemperature(0.5, 2.0),
    "Epsilon": us.Epsilon(0.05),
    "Eta": us.Eta(0.05),
    "ForcedBOS": us.decode.ForcedBOS(6),
    "ForcedEOS": us.decode.ForcedEOS(3, EOS),
    "FrequencyPenalty": us.FrequencyPenalty(0.5, prompt=True),
    "Grammar": us.Grammar(regex=r"[abc. w0-7]*"),
    "Kappa": us.decode.Kappa(0.5, 4),
    "LogitBias": us.LogitBias({6: 2.0, 7: -2.0}),
    "MinK": us.decode.MinK(),
    "MinLength": us.MinLength(2, EOS),
    "MinP": us.MinP(0.2),
    "Mirostat": us.Mirostat(2.0),
    "NoRepeatNgram": us.NoRepeatNgram(1),
    "PLess": us.decode.PLess(),
    "PresencePenalty": us.PresencePenalty(0.5, prompt=True),
    "QuadraticSmoothing": us.decode.QuadraticSmoothing(0.5),
    "RepetitionPenalty": us.RepetitionPenalty(1.3),
    "SequenceBias": us.decode.SequenceBias({(6,): 2.0, (6, 7): -2.0}),
    "TailFree": us.decode.TailFree(0.8),
    "Temperature": us.Temperature(0.7),
    "ThinkingBudget": us.ThinkingBudget(1, close=[7], open=[6]),
    "TopA": us.decode.TopA(0.4),
    "TopH": us.decode.TopH(0.5),
    "TopK": us.TopK(3),
    "TopNSigma": us.TopNSigma(1.0),
    "TopP": us.TopP(0.7),
    "Typical": us.Typical(0.5),
    "XTC": us.XTC(0.05, 1.0),
}
TRUNCATIONS = [name for name, rule in RULES.items() if isinstance(rule, Truncation)]
RANKED = {
    "Coverage": {"coverage": us.decode.Coverage(0.2)},
    "FirstFull": {"stop": us.decode.FirstFull()},
    "GNMT": {"length_penalty": us.GNMT(0.6)},
    "Heuristic": {"stop": us.decode.Heuristic()},
    "Length": {"length_penalty": us.Length(1.0)},
    "Proved": {"stop": us.decode.Proved()},
    "Sum": {"length_penalty": us.decode.Sum()},
}
BEAMS = {
    "Beam": lambda options: us.Beam(3, **options),
    "BeamSample": lambda options: us.BeamSample(3, **options),
    "ConstrainedBeam": lambda options: us.ConstrainedBeam(3, ((5,),), **options),
    "DiverseBeam": lambda options: us.DiverseBeam(4, 2, 0.5, **options),
}


def test_every_rule_has_an_example():
    assert {name: type(rule) for name, rule in RULES.items()} == TRANSFORMS
    assert set(RANKED) == set(RANKING)
    beams = {name for name, made in SEARCHES.items() if "keywords" in inspect.signature(made).parameters}
    assert set(BEAMS) == beams


@pytest.mark.parametrize("rule", RULES)
def test_every_transform_in_every_search_that_takes_one(pairs, ruled_decoder, rule):
    # A contrast has a score of its own to rank by, and cuts tokens before any rule does.
    with pairs.refused(pairs.refusal(ruled_decoder, "Contrast", rule)):
        cell = pairs.Cell(ruled_decoder, "Contrast", RULES[rule])
        cell.ask(cell.prompts[:2])


@pytest.mark.parametrize("rule", RULES)
def test_every_transform_on_every_model(pairs, model, rule):
    with pairs.refused(pairs.refusal("Sample", model, rule)):
        cell = pairs.Cell("Sample", model, RULES[rule])
        for prompt, (out,) in zip(cell.prompts[:2], cell.ask(cell.prompts[:2]), strict=True):
            assert out.scores == pytest.approx(replayed(cell.model, prompt, out, RULES[rule]), abs=1e-4)


def replayed(model, prompt, out, rule):
    """log p of each token as the rule reshapes what the model says, one step after the other."""
    (rule,) = bind_transforms((rule,), model, job_for(model, prompt))
    step, state = model.start([prompt])
    # A source is not the beginning of its answer.
    read = () if model.is_encoder_decoder else tuple(prompt)
    found = []
    for place, token in enumerate(out.tokens):
        so_far = (out.tokens[:place], out.logps[:place], out.scores[:place])
        reshaped_1V = rule(step.logp_NV, step, [Hypothesis(0, 0, read, *so_far)]).log_softmax(-1)
        found.append(reshaped_1V[0, token].item())
        step, state = model.step(state, torch.tensor([token]))
    return found


def job_for(model, prompt):
    """What a rule is told before the first step."""
    eos = model.tokenizer.eos_ids if model.tokenizer else frozenset()
    return Job((tuple(prompt),), (9,), (0,), eos=eos)


def test_basis_aware_on_every_model(pairs, model):
    basis_aware(pairs, model, us.BasisAware())


def test_basis_aware_on_every_head(pairs, headed_model):
    basis_aware(pairs, headed_model, us.BasisAware(0.3))


@pytest.mark.parametrize("threshold", TAU_RULES)
def test_every_threshold_of_basis_aware(pairs, threshold):
    basis_aware(pairs, "transformer_lm", us.BasisAware(TAU_RULES[threshold](0.3), rank=4))


@pytest.mark.parametrize("rule", TRUNCATIONS)
def test_basis_aware_after_every_truncation(pairs, rule):
    basis_aware(pairs, "transformer_lm", RULES[rule], us.BasisAware(0.9))


@pytest.mark.parametrize("rule", RULES)
def test_basis_aware_on_what_every_transform_makes(pairs, rule):
    basis_aware(pairs, "transformer_lm", RULES[rule], us.BasisAware(0.3, on="processed"))


def basis_aware(pairs, model, *rules):
    with pairs.refused(pairs.refusal("Sample", model, "BasisAware")):
        cell = pairs.Cell("Sample", model, *rules)
        for (out,) in cell.ask(max_new_tokens=6):
            assert out.stats["drawn"] >= len(out.tokens)


@pytest.mark.parametrize("pick", PICKS)
def test_every_pick_in_every_search_that_takes_rules(pairs, ruled_decoder, pick):
    with pairs.refused(pairs.refusal(ruled_decoder, "transformer_lm", pick)):
        cell = pairs.Cell(ruled_decoder, "transformer_lm", PICKS[pick]())
        cell.ask()


@pytest.mark.parametrize("rule", RANKED)
@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("model", ["transformer_lm", "rnn_seq2seq", "transformer_seq2seq", "Contrast"])
def test_every_ranking_rule_in_every_beam(pairs, beam, rule, model):
    with pairs.refused(pairs.refusal(beam, model, rule)):
        cell = pairs.Cell(beam, model)
        cell.decoder = BEAMS[beam](RANKED[rule])
        for group in cell.ask(cell.prompts[:2], n=2):
            assert all(math.isfinite(out.total) for out in group)


@pytest.mark.parametrize("utility", UTILITIES)
def test_every_utility_of_mbr(pairs, utility, model):
    with pairs.refused(pairs.refusal("MBR", model, utility)):
        cell = pairs.Cell("MBR", model)
        cell.decoder = us.MBR(3, utility=UTILITIES[utility]())
        cell.ask(cell.prompts[:1])
