PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install -q -c constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: install quickstart test lint docs clean

$(BIN)/core: setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(INSTALL) -e ".[plot]"
	touch $@

$(BIN)/tests: $(BIN)/core
	$(INSTALL) -e ".[test]"
	touch $@

install: $(BIN)/core

quickstart: install
	$(BIN)/python examples/start/plot_quickstart.py quickstart.png

test: $(BIN)/tests
	$(BIN)/pytest -n auto

lint: $(BIN)/tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(BIN)/tests
	$(INSTALL) -e ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/pictures.py
	SKDGP_HTML=docs/_build/html $(BIN)/pytest -q tests/docs

clean:
	rm -rf $(VENV) build dist docs/_build docs/auto_examples docs/generated
