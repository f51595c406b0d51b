# The two commands of the README are `make demo` and `make test`; both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/quickstart

# Compiled modules and tests are kept: else each of the processes that tests start compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-default test-slow golden golden-check coverage bench gpu-check validate results gallery docs lint clean

demo: $(VENV)/.run-ready
	$(BIN)/netsim sweep scenarios/library/examples/quickstart.toml --out $(OUT) --overwrite

# Beside each other: most of the checks is one process, mypy.
test: $(VENV)/.test-ready
	$(MAKE) --no-print-directory --jobs 2 lint test-default

test-default: $(VENV)/.test-ready
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

test-slow: $(VENV)/.test-ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests

# Record the tables of every scenario file (tests/golden/README.md), or compare with those recorded.
golden: $(VENV)/.test-ready
	$(BIN)/python -m tests.golden.record

golden-check: $(VENV)/.test-ready
	$(BIN)/python -m tests.golden.record --check

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Lines and branches of the engine that its own tests reach.
coverage: $(VENV)/.test-ready
	$(BIN)/coverage run -m pytest tests/netsim tests/golden tests/analysis/statistics
	$(BIN)/coverage report --skip-covered

# One process, one benchmark at a time: the ratios are measured within one run.
bench: $(VENV)/.test-ready
	$(BIN)/python -m pytest tests/benchmarks -m "" --benchmark-only -s

# Training on a GPU: equal results, ratios, memory (docs/results-gpu.md). Needs CUDA and a torch built for it.
gpu-check: $(VENV)/.test-ready
	$(BIN)/python -m tests.benchmarks.gpu_check

# Predictions beside rounds over real sockets (docs/results-sockets.md): minutes; needs Linux, root, ip and tc.
validate: $(VENV)/.test-ready
	$(BIN)/python -m tests.reliability.sockets.campaign

# The measured tables of README and the result pages (docs/results.md): minutes; after an interruption it goes on.
results: $(VENV)/.test-ready
	$(BIN)/python -m tests.measured.record

# The pictures of docs/gallery.md, by the commands on that page.
gallery: $(VENV)/.test-ready
	$(BIN)/python -m tests.gallery

# The generated pages, and the site: build/site/index.html (its search needs `python -m http.server -d build/site`).
docs: $(VENV)/.test-ready
	$(BIN)/netsim schema --markdown > docs/scenario-reference.md
	$(BIN)/netsim schema > docs/scenario.schema.json
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[fl]'
	@touch $@

$(VENV)/.test-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[fl,cluster,privacy,tensorboard,docs,fit,flower,test]'
	@touch $@ $(VENV)/.run-ready

clean:
	rm -rf $(VENV) runs build *.egg-info
