# Each target sets up .venv by itself; `make demo` and `make test` are all a newcomer needs.

PYTHON ?= python3
BIN := .venv/bin
# More than one torch thread beside another busy process is slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test check audit format bench figures docs clean

demo: .venv/ready
	$(BIN)/rtta demo

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/prose.py

# Known vulnerabilities of the pinned packages. It has to ask PyPI, so it is no part of check.
audit: .venv/ready
	$(BIN)/python tools/audit.py

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/runner.py

# Every table and picture of README and docs, from new runs: 10 minutes on two cores.
figures: .venv/ready
	$(BIN)/python tools/figures.py

# Opens from disk: build/site/index.html. No internet is needed; a warning is an error.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# torch comes first, by its pinned version, so that nothing after it looks for another.
# The networks that the tests adapt (timm's, torchvision's) are installed without what they ask
# for: their wheels would bring another torch.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray,report,results,docs,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps timm torchvision
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build
