# `make run` and `make test` set everything up by themselves, once, and again when the packages change.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := doom,play,agents,dev

# The first of these that runs and can make virtual environments; choose another one with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help run test lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## train an agent in the bundled world, try it in the true game, and write story/report.html about it
	$(BIN)/wp2 story --out story --minutes 9

# One thread per test process: the tests run side by side.
test: $(READY) ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile

lint: $(READY) ## check the code's style
	$(BIN)/ruff check .

clean: ## remove the virtual environment, caches and the story
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info story demo.mp4
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "This needs Python 3.10 to 3.13 with venv; none was found. Install one, or say where it is: make PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@
