# make demo: a real training on this machine.  make test: the tests.  Both install what they need into $(VENV).
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The image of the launcher on a Paddle image: make image BASE=your/paddle:tag IMAGE=your/paddle:launcher
BASE ?= python:3.11-slim
IMAGE ?= paddle-launcher:latest
BUILDER ?= $(shell command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1 && echo docker || echo buildah)

.PHONY: demo test e2e lint bench image clean

$(INSTALLED): requirements/runtime.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(INSTALLED)
	$(BIN)/python tests/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) --ignore tests/e2e

# On the cluster of KUBECONFIG, with the images of E2E_IMAGE and E2E_DATA_IMAGE (.ci/run makes them). TABLE=docs/e2e.md keeps the results.
e2e: $(INSTALLED)
	E2E_TABLE=$(TABLE) $(BIN)/python -m pytest tests/e2e

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m bench

image:
	$(BUILDER) build -f docker/Dockerfile --build-arg BASE=$(BASE) -t $(IMAGE) .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache demo-output
