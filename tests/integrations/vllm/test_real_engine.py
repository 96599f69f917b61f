"""Texts of the real vLLM equal those of `us.generate`, on both runners: `make test-vllm`.

Each engine runs this file in a separate process. On a CPU the V2 runner needs Triton's interpreter.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unspool as us

pytestmark = pytest.mark.vllm

LENGTH = 24
PROMPTS = (
    "In the beginning",
    "And it came to pass in those days, that there went out a decree from",
    "The LORD said unto Moses, Go unto Pharaoh, and say unto him, Thus saith the",
    "Blessed are the poor in",
    "And Jesus answered and said unto",
    "Now",
)
DECODERS = (
    "Greedy()",
    "Sample(Temperature(0.8), TopP(0.9))",
    "Sample(BasisAware(0.1))",
    "Sample(TopP(0.95), BasisAware(NucleusTau(0.9)))",
    "Sample(Mirostat(3.0))",
    "Sample(RepetitionPenalty(1.3), XTC(), MinLength(20))",
    "Greedy(BadWords(('God',)))",
)
UNIFORM = "Sample(Temperature(1000000000.0))"
"""All tokens are equally probable, so that a text depends on its random stream alone."""
FAULTS = {
    "Sample(LogitBias({5000: 1.0}))": "LogitBias.bias holds the token ids [5000]",
    "Sample(BasisAware(0.1, rank=5000))": "BasisAware.rank is 5000",
}


def asked(prompts, decoders, seeds=None, **others):
    """(prompt, SamplingParams) of every request; a decoder may be None."""
    from vllm import SamplingParams

    extra = [None if decoder is None else {"unspool": decoder} for decoder in decoders]
    seeds = range(len(extra)) if seeds is None else seeds
    return prompts, [
        SamplingParams(max_tokens=LENGTH, seed=seed, extra_args=it, **others)
        for seed, it in zip(seeds, extra, strict=True)
    ]


def write(runner, folder, blocks):
    """Print the outputs of vLLM as JSON."""
    if runner == "V2":
        from types import SimpleNamespace

        from triton.backends import backends

        backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
    from vllm import LLM
    from vllm.exceptions import VLLMValidationError

    room = {"num_gpu_blocks_override": int(blocks)} if int(blocks) else {}
    # V1 crashes on a CPU where a request with a seed is read in parts; V2 does not.
    parts = {"max_num_batched_tokens": 16} if runner == "V2" and not room else {}
    llm = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=6, **room, **parts)
    ids = [
        {"prompt_token_ids": list(us.load(folder, engine="torch").tokenizer.encode(one))} for one in PROMPTS
    ]

    def texts(prompts, params):
        answers = llm.generate(prompts, params, use_tqdm=False)
        return [list(one.token_ids) for answer in answers for one in answer.outputs]

    said = {"runner": llm.llm_engine.vllm_config.use_v2_model_runner}
    for decoder in DECODERS if not room else DECODERS[1:3]:
        said[decoder] = texts(*asked(ids, [decoder] * len(ids)))
    if not room:
        said["theirs"] = texts(*asked(ids[:2], [None] * 2, temperature=0.0))
        said["mixed"] = texts(*asked(ids[:5], ["Greedy()", None, DECODERS[1], *FAULTS]))
        said["n"] = texts(*asked(ids[:1], [DECODERS[1]], n=3))
        for order, some in {"one seed": ids, "reversed": ids[::-1], "alone": ids[:1]}.items():
            said[order] = texts(*asked(some, [UNIFORM] * len(some), [7] * len(some)))
        said["no seed"] = [
            text for _ in range(2) for text in texts(*asked(ids[:1] * 4, [UNIFORM] * 4, [None] * 4))
        ]
        for refused in (["Beam(4)"], ["Sample(Tpo(0.9))"]):
            try:
                texts(*asked(ids[:1], refused))
            except VLLMValidationError as error:
                said[refused[0]] = str(error)
        said["after"] = texts(*asked(ids[:1], [DECODERS[1]]))
    print(json.dumps(said))


def written(runner, folder, blocks=0):
    """(what vLLM wrote, its log)."""
    settings = {
        "VLLM_USE_V2_MODEL_RUNNER": "1" if runner == "V2" else "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **({"TRITON_INTERPRET": "1"} if runner == "V2" else {}),
    }
    done = subprocess.run(
        [sys.executable, __file__, runner, str(folder), str(blocks)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.fixture(scope="module", params=["V1", "V2"])
def run(request, folder):
    return request.param, *written(request.param, folder)


def wanted(model, decoder, which, seed):
    ids = model.tokenizer.encode(PROMPTS[which])
    return list(us.generate(model, ids, us.parse(decoder), max_new_tokens=LENGTH, seed=seed).tokens)


def test_entry_point_adapts_to_the_runner(run):
    assert run[1]["runner"] == (run[0] == "V2")


@pytest.mark.parametrize("decoder", DECODERS)
def test_texts_equal_us_generate(decoder, run, model):
    assert run[1][decoder] == [wanted(model, decoder, it, it) for it in range(len(PROMPTS))]


def test_requests_without_a_decoder_are_unchanged(run, model):
    assert run[1]["theirs"] == [wanted(model, "Greedy()", it, 0) for it in range(2)]


def test_different_decoders_in_one_batch(run, model):
    greedy, _, sampled, *ended = run[1]["mixed"]
    assert greedy == wanted(model, "Greedy()", 0, 0)
    assert sampled == wanted(model, DECODERS[1], 2, 2)
    assert ended == [[2], [2]]
    for message in FAULTS.values():
        assert message in run[2]


def test_outputs_of_one_request_have_consecutive_seeds(run, model):
    assert run[1]["n"] == [wanted(model, DECODERS[1], 0, seed) for seed in range(3)]


def test_prompts_with_one_seed_have_independent_streams_in_any_batch_and_order(run, model):
    texts = [wanted(model, UNIFORM, it, 7) for it in range(len(PROMPTS))]
    assert len({text[0] for text in texts}) > 3
    assert run[1]["one seed"] == texts
    assert run[1]["reversed"] == texts[::-1]
    assert run[1]["alone"] == texts[:1]


def test_without_a_seed_every_request_differs(run):
    assert len(set(map(tuple, run[1]["no seed"]))) == 8


def test_invalid_decoders_are_rejected_and_the_engine_continues(run, model):
    assert "one token at a time" in run[1]["Beam(4)"]
    assert "did you mean" in run[1]["Sample(Tpo(0.9))"]
    assert run[1]["after"] == [wanted(model, DECODERS[1], 0, 0)]


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_preempted_requests_resume(runner, folder, model):
    said, _ = written(runner, folder, blocks=9)
    for decoder in DECODERS[1:3]:
        assert said[decoder] == [wanted(model, decoder, it, it) for it in range(len(PROMPTS))]


def test_vllm_documentation_runs(tmp_path):
    page = (Path(__file__).parents[3] / "docs/vllm.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert snippets
    (tmp_path / "page.py").write_text("\n".join(snippets), encoding="utf-8")
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    theirs, ours = done.stdout.splitlines()[-2:]
    assert theirs == ours
    assert len(ours) > 20


if __name__ == "__main__":
    write(*sys.argv[1:])
