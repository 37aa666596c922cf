# Two commands: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEFAULT_TESTS := not slow and not gpu and not root and not netns

.PHONY: demo test lint format clean

demo: $(VENV)/.installed
	$(BIN)/python -m experiments.demo

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m '$(DEFAULT_TESTS) and not alone'
	$(BIN)/python -m pytest -m '$(DEFAULT_TESTS) and alone'

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "pcr-exp needs Python >= 3.11; say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
