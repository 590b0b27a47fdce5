# Two commands are all a new machine needs: `make demo` and `make test`. The rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Configure and build one preset of CMakePresets.json, with the environment's cmake and ninja.
BUILD = PATH="$(abspath $(BIN)):$$PATH" sh -ec 'cmake --log-level=WARNING --preset $(1) >/dev/null; cmake --build --preset $(1)'
NATIVE := $(shell find native -type f)
CPP := $(filter %.h %.cpp %.inc,$(NATIVE)) $(wildcard tests/native/*.cpp tests/native/*.h benchmarks/*.cpp examples/c/*.c)
# What stands beside the paper's numbers: all accuracies of Table 2, one run for each kind of figure.
PAPER_RUNS = runs/cifar10/resnet20-2t-? runs/cifar10/resnet20-1t-? runs/cifar10/mobilenet-dbq-2t-4-0 \
    runs/comparison/resnet20/lqnet-?B runs/vehicles/width=*

.PHONY: demo test quick native install-check check fix bench results paper clean

demo: $(READY)            ## the product's main job, end to end, on real data that needs no download
	$(BIN)/dbq demo

test: $(READY) check native  ## every check and every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

quick: $(READY)           ## the daily loop: what needs no other process, browser, compiler or long training
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not (native or process or browser or slow)"

native: $(READY)          ## the C++ test programs, plain and with sanitizers, and the kernel benchmark
	$(call BUILD,plain)
	$(call BUILD,asan)
	$(call BUILD,tsan)

install-check: $(READY)   ## the wheel in fresh environments, without torch
	PYTHON=$(BIN)/python tests/install_check.sh

check: $(READY)           ## lint, formatting, types; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy

fix: $(READY)             ## apply what ruff and clang-format can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

bench: $(READY)           ## all benchmarks, one after the other; nothing else should run meanwhile
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/prepare_time.py
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/post_training.py
	$(BIN)/python benchmarks/input_pipeline.py
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/pages.py

results: $(READY)         ## all real trainings on CIFAR-10: hours; can be stopped and goes on
	$(BIN)/python benchmarks/cifar10.py
	$(BIN)/python benchmarks/deployed.py
	$(BIN)/python benchmarks/comparison.py resnet20 --rounds 20
	$(BIN)/python benchmarks/comparison.py mobilenet_v1 --rounds 20
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/pages.py

paper: $(READY)           ## every table and figure of the paper with what `make results` trained
	$(BIN)/dbq paper $(wildcard $(PAPER_RUNS)) -o results/paper

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache

# The virtual environment, made again whenever the dependencies change. Always under constraints.txt:
# torch without it would bring gigabytes of CUDA.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

# The libraries in src/dbq, whenever their sources change; installing has built them already.
$(READY): $(INSTALLED) CMakeLists.txt CMakePresets.json src/dbq/version.py $(NATIVE)
	$(call BUILD,package)
	touch $@
