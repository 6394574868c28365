# make demo: a real training on this machine.  make test: the tests.  Both install what they need.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 8
E2E_JOBS ?= 4
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
EDITABLE := pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
NEWEST_PYTHON_2.6.2 := 12
NEWEST_PYTHON_3.3.1 := 13

# A Paddle image with the launcher: make image BASE=your/paddle:tag IMAGE=your/paddle:launcher
BASE ?= python:3.11-slim
VERSION = $(shell sed -n 's/__version__ = "\(.*\)"/\1/p' launcher/__init__.py)
IMAGE ?= paddle-launcher:$(VERSION)
# ALLOW_LATEST=1 allows a BASE that changes without notice: with the tag latest, or without a tag.
ALLOW_LATEST ?=
BUILDER ?= $(shell command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1 && echo docker || echo buildah)

# Tests start thousands of Python processes: each module is compiled once, and not in each of them.
unexport PYTHONDONTWRITEBYTECODE

# How long `make fuzz` runs, for all targets together.
FUZZ_SECONDS ?= 180

# The time stamp of all files in packages, 2026-01-01. It is fixed, so that the same files always make the same packages.
SOURCE_DATE_EPOCH ?= 1767225600
ACTIONLINT := v1.7.12

.PHONY: demo test floor test-paddle test-arm64 test-aws test-dist docs test-docs e2e lint bench fuzz chaos dist image pins clean

$(INSTALLED): requirements/runtime.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m $(EDITABLE)
	touch $@

# Write the pins, with the hashes of all their files, from requirements/*.in. What tests need is for Python 3.11 and newer.
pins: $(VENV)-dist/.installed
	for name in aws-3.11 build-3.10 dev-3.11 dist-3.11 docs-3.11 fuzz-3.11 paddle-2.6.2-3.10 paddle-3.3.1-3.10 runtime-3.10; do \
	  $(VENV)-dist/bin/uv pip compile --quiet --universal --python-version $${name##*-} --generate-hashes --no-annotate --no-emit-index-url \
	    --custom-compile-command "make pins" requirements/$${name%-*}.in --output-file requirements/$${name%-*}.txt || exit 1; \
	done

# An environment with this version of Paddle and with the launcher.
$(VENV)-paddle-%/.installed: requirements/paddle-%.txt requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $(NEWEST_PYTHON_$*)))' || { \
	  echo "Paddle $* takes Python 3.10 to 3.$(NEWEST_PYTHON_$*), but $(PYTHON) is another: make PYTHON=python3.$(NEWEST_PYTHON_$*)" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/paddle-$*.txt -r requirements/runtime.txt
	$(@D)/bin/python -m $(EDITABLE)
	touch $@

demo: $(VENV)-paddle-2.6.2/.installed
	$(VENV)-paddle-2.6.2/bin/python examples/quick_start/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) --maxschedchunk 1 --ignore tests/e2e --ignore tests/wheels --ignore tests/aws --ignore tests/dist --ignore tests/website

# The scenarios with few resources for each pod, as root.
FLOOR ?= pids=40 memory=64 nofile=64 deny=pidfd_open,eventfd2
floor: $(INSTALLED)
	FLOOR="$(FLOOR)" $(BIN)/python -m pytest tests/scenarios -n $(JOBS) --maxschedchunk 1

# With Paddle's own wheels for CPUs: two environments, 330 MB to download, 1.5 GB on the disk.
test-paddle: $(INSTALLED) $(VENV)-paddle-2.6.2/.installed $(VENV)-paddle-3.3.1/.installed
	PADDLE_2=$(abspath $(VENV)-paddle-2.6.2/bin/python) PADDLE_3=$(abspath $(VENV)-paddle-3.3.1/bin/python) \
	  $(BIN)/python -m pytest tests/wheels

# The AWS CLI, and a server that stands for AWS.
$(VENV)-aws/.installed: requirements/aws.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# The AWS commands of docs/eks.md, on this machine only.
test-aws: $(INSTALLED) $(VENV)-aws/.installed
	AWS_TOOLS=$(abspath $(VENV)-aws/bin) $(BIN)/python -m pytest tests/aws

# What builds packages, checks them, and installs them.
$(VENV)-dist/.installed: requirements/dist.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# A wheel, a source distribution, and an SBOM of what they need (CycloneDX), with their digests.
dist: $(VENV)-dist/.installed
	rm -rf dist
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(VENV)-dist/bin/python -m build --no-isolation --outdir dist .
	$(VENV)-dist/bin/twine check --strict dist/*
	sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > dist/pyproject.toml
	env -u SOURCE_DATE_EPOCH $(VENV)-dist/bin/python -W ignore::UserWarning -m cyclonedx_py requirements requirements/runtime.txt \
	  --pyproject dist/pyproject.toml --output-reproducible --output-file dist/paddle_launcher-$(VERSION).cdx.json
	rm dist/pyproject.toml
	cd dist && sha256sum * > SHA256SUMS

$(VENV)-dist/bin/actionlint: $(VENV)-dist/.installed
	@command -v go >/dev/null || { echo "actionlint is built with Go, and there is none: install Go 1.24 or newer" >&2; exit 1; }
	GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

# The packages of `make dist`, each way to install them, the workflows of GitHub. Needs Go and the package index.
test-dist: $(INSTALLED) $(VENV)-dist/bin/actionlint
	DIST_TOOLS=$(abspath $(VENV)-dist/bin) $(BIN)/python -m pytest tests/dist

# The images for arm64, built and run here, as root. Needs buildah, debootstrap and qemu-user-static.
test-arm64:
	tests/dist/arm64.sh

$(VENV)-docs/.installed: requirements/docs.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# The documentation site, in site/. It ends with an error if a link, a heading or a page of the navigation is missing.
docs: $(VENV)-docs/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs build --strict

# The built site: in a browser, and compared with its sources.
test-docs: $(INSTALLED) docs
	DOCS_SITE=$(abspath site) DOCS_PYTHON=$(abspath $(VENV)-docs/bin/python) $(BIN)/python -m pytest tests/website

# On the cluster of KUBECONFIG, with the images of E2E_IMAGE and E2E_DATA_IMAGE (.ci/run makes them). TABLE=docs/e2e.md keeps the results.
e2e: $(INSTALLED)
	E2E_TABLE=$(TABLE) $(BIN)/python -m pytest tests/e2e -n $(E2E_JOBS) --maxschedchunk 1

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/python -m bench

$(VENV)/.installed-fuzz: $(INSTALLED) requirements/fuzz.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/fuzz.txt
	touch $@

# What the launcher reads from others, with inputs that the fuzzer makes. Python 3.11 to 3.13 on x86-64, for which atheris has wheels.
fuzz: $(VENV)/.installed-fuzz
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(if $(SEED),--seed $(SEED)) $(TARGETS)

# Many faults at once, for gangs on this machine, as root. ROUNDS=20 or MINUTES=5; SEED=42 ROUNDS=1 plays one round again.
# KINDS="cut,kill trainer" draws only from these. A seed is the same plan only with the same kinds.
# ON=pods: on a cluster whose nodes are this machine. It needs what `make e2e` needs, and CLUSTER, the command that powers nodes off and on.
chaos: $(INSTALLED)
	$(BIN)/python -m chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds "$(KINDS)") $(if $(ON),--on $(ON))

image:
	@ALLOW_LATEST=$(ALLOW_LATEST) docker/check_base.sh BASE $(BASE)
	$(BUILDER) build -f docker/Dockerfile --build-arg BASE=$(BASE) $(if $(ALLOW_LATEST),--build-arg ALLOW_LATEST=$(ALLOW_LATEST) )-t $(IMAGE) .

clean:
	rm -rf $(VENV) $(VENV)-aws $(VENV)-dist $(VENV)-docs $(VENV)-paddle-* site build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache demo-output
