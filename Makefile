PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: install quickstart test lint docs clean

$(BIN)/installed: setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

install: $(BIN)/installed

quickstart: install
	$(BIN)/python examples/plot_quickstart.py quickstart.png

test: install
	$(BIN)/pytest -n auto

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: install
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build dist docs/_build docs/auto_examples docs/generated
