"""Wrong types and values, thrown at every argument of what unspool.basis, .evaluate, .diagnose and .plots export."""

import inspect
from dataclasses import is_dataclass

import numpy as np
import pytest
import torch

import unspool as us
from unspool import basis, diagnose, evaluate, plots
from unspool.data.conllu import TreeSentence, TreeWord
from unspool.data.known_languages import Agreement
from unspool.data.known_languages.known_language import TrueModel
from unspool.heads import HEADS
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
V = TEXT.vocab_size
SIZES = {"vocab_size": V, "width": 4, "heads": 2, "inner_width": 4, "layers": 1, "context": 12}
torch.manual_seed(0)
LM = us.models.TransformerConfig(**SIZES).build(TEXT).eval()
KERBS = us.models.TransformerConfig(**SIZES, head=HEADS["kerbs"](senses=1.5)).build(TEXT).eval()

DICE = np.random.default_rng(0)
W = DICE.normal(size=(V, 3))
P, SEVERAL = DICE.dirichlet(np.ones(V)), DICE.dirichlet(np.ones(V), 4)
MODEL, TRUE = torch.tensor(SEVERAL), torch.tensor(DICE.dirichlet(np.ones(V), 4))
TEST = basis.BasisTest(W, 3)
FOUND = [TEST.accepts(P, i, tau=0.5).certificate for i in range(V)]
YES = next(it for it in FOUND if isinstance(it, basis.Acceptance))
NO = next(it for it in FOUND if isinstance(it, basis.Rejection))
RULE = basis.KappaRule(3, (0.1, 0.2), (0.5, 0.6))
TEXTS = ["abcdef", "fedcba ab"]
LANGUAGE = Agreement()
SPEAKER = TrueModel(LANGUAGE)
TRAP = diagnose.likelihood_trap(LM, [([4], [5, 6, 7])], length=3, phrase=1)
MEAN = evaluate.mean_of([1.0, 2.0, 4.0])
TREES = [TreeSentence("ab cd", (TreeWord("ab", 0, 2, 1, "det"), TreeWord("cd", 3, 5, None, "root")))]

CALLS = {
    "basis.BasisTest": (basis.BasisTest, {"W": W, "rank": 2, "cache": None, "budget": 1e9}),
    "BasisTest.with_budget": (TEST.with_budget, {"budget": 1e9}),
    "BasisTest.step": (TEST.step, {"p": P}),
    "BasisTest.accepts": (TEST.accepts, {"p": P, "i": 1, "tau": 0.5}),
    "BasisTest.mask": (TEST.mask, {"p": P, "tau": 0.5}),
    "BasisTest.critical_tau": (TEST.critical_tau, {"p": P, "i": 1}),
    "BasisTest.row_lengths": (TEST.row_lengths, {"p": SEVERAL}),
    "BasisTest.verify": (TEST.verify, {"certificate": YES, "p": P, "tau": 0.5}),
    "BasisTest.solve_linear_program": (TEST.solve_linear_program, {"p": P, "i": 1, "tau": 0.5}),
    "BasisStep.accepts": (TEST.step(P).accepts, {"i": 1, "tau": 0.5}),
    "BasisStep.verdicts": (TEST.step(P).verdicts, {"tokens": [1, 2], "tau": 0.5}),
    "BasisStep.mask": (TEST.step(P).mask, {"tau": 0.5}),
    "basis.KappaRule": (
        lambda **given: basis.KappaRule(**given).step(P),
        {"m": 3, "slopes": (0.1, 0.2), "thresholds": (0.5, 0.6), "lengths": None},
    ),
    "KappaRule.step": (RULE.step, {"p": P}),
    "KappaRule.threshold": (RULE.threshold, {"tau": 0.5}),
    "KappaStep.accepts": (RULE.step(P).accepts, {"i": 1, "tau": 0.5}),
    "basis.RowLengths": (
        lambda **given: basis.KappaRule(3, (0.1,), (0.5,), basis.RowLengths(**given)).step(P),
        {"values_V": np.ones(V)},
    ),
    "basis.Acceptance": (
        lambda **given: TEST.verify(basis.Acceptance(**given), P, 0.5),
        {"token": YES.token, "dual_M": YES.dual_M},
    ),
    "basis.Rejection": (
        lambda **given: TEST.verify(basis.Rejection(**given), P, 0.5),
        {name: getattr(NO, name) for name in ("token", "rows_N", "shift_N")},
    ),
    "BasisTest.calibrate_kappa": (TEST.calibrate_kappa, {"p": SEVERAL, "taus": [0.5]}),
    "basis.verify_certificate": (basis.verify_certificate, {"certificate": YES, "W": W, "p": P, "tau": 0.5}),
    "basis.kappa": (basis.kappa, {"p": P, "m": 3}),
    "basis.solve_linear_program": (basis.solve_linear_program, {"W": W, "p": P, "i": 1, "tau": 0.5}),
    "basis.tau_from_delta": (basis.tau_from_delta, {"delta": 0.5}),
    "evaluate.SummedMeasure": (
        lambda **given: evaluate.bootstrap(evaluate.SummedMeasure(**given)),
        {"counts_NK": np.ones((3, 2)), "of_sums": lambda sums: float(sums[0])},
    ),
    "evaluate.approximate_randomisation": (
        evaluate.approximate_randomisation,
        {"first": MEAN, "second": MEAN, "samples": 10},
    ),
    "evaluate.bootstrap": (evaluate.bootstrap, {"measure": MEAN, "samples": 10}),
    "evaluate.calibration": (evaluate.calibration, {"confidences": [0.5, 1.0], "correct": [True, False]}),
    "evaluate.coherence": (evaluate.coherence, {"model": LM, "prompts": ["ab", "cd"], "texts": ["c", "d"]}),
    "evaluate.decoder_truth": (
        evaluate.decoder_truth,
        {"decoder": us.Greedy(), "model": SPEAKER, "language": LANGUAGE, "sentences": 2},
    ),
    "evaluate.length_ratio": (evaluate.length_ratio, {"outputs": [[1, 2]], "references": [[1]]}),
    "evaluate.mean_of": (evaluate.mean_of, {"values": [1.0, 2.0]}),
    "evaluate.overlap_measures": (evaluate.overlap_measures, {"outputs": ["a b"], "references": ["a c"]}),
    "evaluate.measure_system": (
        evaluate.measure_system,
        {"system": "x", "texts": ["ab", "cd"], "prompts": ["a", "b"], "references": ["a", "b"], "model": LM}
        | {"human": None, "tokens": str.split},
    ),
    "evaluate.paired_tests": (
        evaluate.paired_tests,
        {
            "first": evaluate.measure_system("x", ["a", "b"]),
            "second": evaluate.measure_system("y", ["a", "c"]),
        },
    ),
    "evaluate.pair_calibration": (evaluate.pair_calibration, {"model": LM, "texts": [([4], [5, 6])]}),
    "evaluate.perplexity_of": (evaluate.perplexity_of, {"nats": [1.0, 2.0], "tokens": [1, 2]}),
    "evaluate.ratio_of": (evaluate.ratio_of, {"above": [1.0, 2.0], "below": [1, 2]}),
    "evaluate.self_bleu": (evaluate.self_bleu, {"texts": [[1, 2, 3], [1, 2]]}),
    "evaluate.text_truth": (evaluate.text_truth, {"texts": [[4, 5]], "language": LANGUAGE}),
    "evaluate.token_calibration": (evaluate.token_calibration, {"model": LM, "texts": TEXTS}),
    "evaluate.distinct_n": (evaluate.distinct_n, {"texts": [[1, 2, 3]]}),
    "evaluate.features": (evaluate.features, {"model": LM, "texts": TEXTS}),
    "evaluate.mauve": (
        evaluate.mauve,
        {"human_ND": torch.randn(12, 3), "generated_MD": torch.randn(12, 3), "clusters": 2, "min_texts": 12},
    ),
    "evaluate.text_mauve": (
        evaluate.text_mauve,
        {
            "model": LM,
            "human": ["abcdef", "fedcba"] * 4,
            "generated": ["abcabc", "ffabcd"] * 4,
            "min_texts": 8,
        },
    ),
    "evaluate.ngrams": (evaluate.ngrams, {"tokens": [1, 2, 3], "n": 2}),
    "evaluate.overlap": (evaluate.overlap, {"outputs": ["a b"], "references": ["a c"]}),
    "evaluate.perplexity": (evaluate.perplexity, {"model": LM, "texts": TEXTS}),
    "evaluate.rep_n": (evaluate.rep_n, {"tokens": [1, 2, 3]}),
    "evaluate.seq_rep_n": (evaluate.seq_rep_n, {"texts": [[1, 2, 3]]}),
    "evaluate.support": (
        evaluate.support,
        {"kept_CV": MODEL > 0.01, "p_CV": MODEL, "true_CV": TRUE},
    ),
    "evaluate.zipf_coefficient": (evaluate.zipf_coefficient, {"texts": [[1, 2, 3, 1, 1, 2]]}),
    "diagnose.agreements": (diagnose.agreements, {"model": LM, "sentences": TREES, "min_arcs": 0}),
    "plots.draw_heads": (
        plots.draw_heads,
        {"result": diagnose.agreements(LM, TREES, min_arcs=0), "path": "p.svg"},
    ),
    "diagnose.exposure": (
        diagnose.exposure,
        {"model": LM, "texts": [([4], [5, 6, 7])] * 20, "lengths": (1,)},
    ),
    "diagnose.true_exposure": (
        diagnose.true_exposure,
        {"model": SPEAKER, "language": LANGUAGE, "lengths": (1,), "texts": 3},
    ),
    "diagnose.attention_maps": (diagnose.attention_maps, {"model": LM, "text": "abcdef"}),
    "diagnose.beam_widths": (
        diagnose.beam_widths,
        {"model": LM, "texts": [([4], [5, 6])], "widths": [1, 2]},
    ),
    "plots.draw_attention": (
        plots.draw_attention,
        {"result": diagnose.attention_maps(LM, "abcdef"), "path": "p.svg"},
    ),
    "plots.draw_loops": (
        plots.draw_loops,
        {"result": diagnose.loop_rates(LM, ["ab"], {"g": us.Greedy()}, max_new_tokens=2), "path": "p.svg"},
    ),
    "plots.draw_trap": (plots.draw_trap, {"result": TRAP, "path": "p.svg"}),
    "plots.draw_widths": (
        plots.draw_widths,
        {"result": diagnose.beam_widths(LM, [([4], [5])], [1]), "path": "p.svg"},
    ),
    "diagnose.likelihood_trap": (
        diagnose.likelihood_trap,
        {"model": LM, "texts": [([4], [5, 6, 7])], "length": 3, "phrase": 1},
    ),
    "diagnose.loop_rates": (
        diagnose.loop_rates,
        {"model": LM, "prompts": ["ab"], "decoders": {"g": us.Greedy()}, "max_new_tokens": 2},
    ),
    "diagnose.bottleneck": (diagnose.bottleneck, {"model": LM, "texts": TEXTS}),
    "plots.draw_intervals": (
        plots.draw_intervals,
        {"panels": {"score": {"ours": evaluate.bootstrap(MEAN)}}, "path": "p.svg"},
    ),
    "plots.draw_ranks": (
        plots.draw_ranks,
        {"result": diagnose.rank_tokens(LM, "abc", {"a": us.Sample(us.TopP())}), "path": "p.svg"},
    ),
    "plots.draw_reliability": (
        plots.draw_reliability,
        {"result": evaluate.calibration([0.5], [True]), "path": "p.svg"},
    ),
    "plots.draw_senses": (plots.draw_senses, {"result": diagnose.senses(KERBS), "path": "p.svg"}),
    "plots.draw_simplex": (plots.draw_simplex, {"result": diagnose.feasible(), "path": "p.svg"}),
    "plots.draw_spectrum": (
        plots.draw_spectrum,
        {"result": diagnose.spectrum(MODEL.log()), "path": "p.svg"},
    ),
    "diagnose.failures": (diagnose.failures, {"logp_CV": MODEL.log(), "true_CV": TRUE, "tau": 0.5}),
    "diagnose.feasible": (diagnose.feasible, {"weights": (0.55, 0.71, 0.29), "hidden": 2.5, "delta": 0.6}),
    "diagnose.least_error": (diagnose.least_error, {"true_CV": TRUE.log(), "rank": 2}),
    "diagnose.optimality_gap": (
        diagnose.optimality_gap,
        {"logp_CV": MODEL.log(), "true_CV": TRUE, "matrix_VD": torch.tensor(W)},
    ),
    "diagnose.own_text": (diagnose.own_text, {"model": LM, "tokens": 5}),
    "diagnose.rank_limit": (diagnose.rank_limit, {"model": LM}),
    "diagnose.rank_tokens": (
        diagnose.rank_tokens,
        {"model": LM, "prompt": "abc", "rules": {"a": us.Sample(us.TopP())}, "top": 4},
    ),
    "diagnose.rejected_shares": (
        diagnose.rejected_shares,
        {"model": LM, "texts": TEXTS, "settings": {"top-p": 0.9}},
    ),
    "diagnose.sense_contexts": (diagnose.sense_contexts, {"model": KERBS, "batches": [], "words": [4]}),
    "diagnose.senses": (diagnose.senses, {"model": KERBS}),
    "diagnose.spectrum": (diagnose.spectrum, {"logp_CV": MODEL.log(), "matrix_VD": torch.tensor(W)}),
    "diagnose.thresholds": (
        diagnose.thresholds,
        {"model": LM, "texts": TEXTS, "shares": (0.1,), "rank": 2, "basis_tokens": 5},
    ),
    "diagnose.underestimation": (diagnose.underestimation, {"logp_CV": MODEL.log(), "true_CV": TRUE}),
}
"""What is called, and what it needs that is right."""
ENDLESS = {
    ("evaluate.decoder_truth", "sentences"),
    ("diagnose.own_text", "tokens"),
    ("diagnose.true_exposure", "texts"),
    ("diagnose.true_exposure", "lengths"),
    ("diagnose.exposure", "lengths"),
}
"""Where a huge number is no mistake, only more work than any test has time for."""


def damaged(right):
    """Arrays nearly as they should be."""
    if not isinstance(right, np.ndarray | torch.Tensor) or right.dtype == torch.bool:
        return {}
    as_float = right.float() if isinstance(right, torch.Tensor) else right.astype(float)
    return {
        "all NaN": as_float * np.nan,
        "all infinite": as_float * 0 + np.inf,
        "all −∞": as_float * 0 - np.inf,
        "zeros": as_float * 0,
        "negated": -as_float,
        "huge": as_float * 1e38 * 1e38,
        "a row less": right[:-1],
        "no rows": right[:0],
        "one dimension more": right[None],
        "one dimension less": right[0],
        "a list": right.tolist(),
        "half": as_float.half() if isinstance(right, torch.Tensor) else as_float.astype(np.float16),
        "whole numbers": as_float.long() if isinstance(right, torch.Tensor) else as_float.astype(int),
    }


def test_every_exported_name_is_called_or_is_what_a_call_gives():
    for room in (basis, evaluate, diagnose, plots):
        called = {name.split(".")[1] for name in CALLS if name.startswith(room.__name__.split(".")[1])}
        results = set(room.__all__) - called
        assert all(is_dataclass(getattr(room, name)) for name in results - {"BasisStep"}), results
        assert called <= set(room.__all__)


@pytest.mark.filterwarnings("ignore:.*not better than KappaRule")
@pytest.mark.parametrize("name", CALLS)
def test_valid_arguments_work(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    call, right = CALLS[name]
    call(**right)


@pytest.mark.filterwarnings("ignore:.*not better than KappaRule", "ignore:Glyph")
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, (call, right) in CALLS.items()
        for argument in (right if call.__name__ == "<lambda>" else inspect.signature(call).parameters)
    ],
)
def test_wrong_types_are_refused_with_a_message(name, argument, complaints, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    call, right = CALLS[name]
    found = complaints(
        lambda value: call(**right | {argument: value}),
        huge=(name, argument) not in ENDLESS,
        besides=damaged(right.get(argument)),
    )
    assert found == {}
