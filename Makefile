# Needs only python3 and make. Every target creates .venv when it is absent.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test test-slow lint demo clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,tables]'
	touch $@

# A file of tests stays in one process: its fixtures are trained once.
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow

demo: $(VENV)/.installed
	$(BIN)/uniq-rl train

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
