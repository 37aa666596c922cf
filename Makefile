# Two commands: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
# The versions that results are made with (Python 3.11 on x86-64). Empty: the newest that pyproject.toml admits.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
# The files that have tests with a mark: to import all others takes ten seconds.
marked = $$(grep -rl --include='test_*.py' 'mark\.$(1)' tests)
DEFAULT_TESTS := not slow and not gpu and not root and not netns and not program
# Half as many again as there are cores: a third of the time, tests wait for processes, files and sleeps.
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(3 * os.cpu_count() // 2 or 1)')

.PHONY: demo docs figures notebooks wheels test test-programs test-newest test-lowest test-3.12 test-3.13 lint format constraints clean

demo: $(VENV)/.installed
	$(BIN)/python -m experiments.demo

# Several tests run at once: one thread each, and threads of a program that wait for each other sleep meanwhile.
test test-programs test-lowest: export OMP_NUM_THREADS = 1
test test-programs test-lowest: export OMP_WAIT_POLICY = PASSIVE

test: lint
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder -m '$(DEFAULT_TESTS) and not alone'
	$(BIN)/python -m pytest -m '$(DEFAULT_TESTS) and alone' $(call marked,alone)

# Whole programs, servers and engines, each started as a user would start it.
test-programs: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder -m 'program and not slow' $(call marked,program)

# The same tests elsewhere in the range that pyproject.toml promises, each in an environment of its own.
test-newest:
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=
test-3.12 test-3.13: test-%:
	$(MAKE) test VENV=.venv-$* PYTHON=python$*
# Only what runs is tested: tools such as linters check against the versions that are developed with.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --python .venv-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	.venv-lowest/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder -m '$(DEFAULT_TESTS) and not alone'
	.venv-lowest/bin/python -m pytest -m '$(DEFAULT_TESTS) and alone' $(call marked,alone)

# Every committed figure again, from committed files alone: no dataset, no training.
figures: $(VENV)/.installed
	$(BIN)/python -m experiments.redraw

# The documentation as a site, docs/_build/html/index.html; no warning passes, no network is asked.
docs: $(VENV)/.installed
	$(BIN)/sphinx-build -W -n --keep-going -q docs docs/_build/html

# Run the notebooks from top to bottom, and save them with what they show.
notebooks: $(VENV)/.installed
	cd notebooks && PYTHONPATH=.. $(abspath $(BIN))/jupyter execute --inplace *.ipynb

# For Linux on x86-64 and arm64, into dist/; arm64 takes gcc-aarch64-linux-gnu.
wheels: $(VENV)/.installed
	$(BIN)/python .ci/wheels.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml setup.py $(wildcard pcr_exp/*/*.c) $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "pcr-exp needs Python >= 3.11; say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) -e '.[dev]' || \
	    { echo "If a pinned version does not exist for this machine: make CONSTRAINTS= ..."; exit 1; }
	touch $@

# After `make test-newest`: the versions that it passed with become the pinned ones.
constraints:
	@{ echo "# Names and versions that results are made with: Python 3.11 on x86-64. Made by: make constraints"; \
	   .venv-newest/bin/python -m pip freeze --exclude-editable; } > constraints.txt

clean:
	rm -rf .venv .venv-* docs/_build docs/generated .pytest_cache .mypy_cache .ruff_cache
