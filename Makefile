# Two commands are all a new machine needs: `make demo` and `make test`. The rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Configure and build one preset of CMakePresets.json, with the environment's cmake and ninja.
BUILD = PATH="$(abspath $(BIN)):$$PATH" sh -ec 'cmake --log-level=WARNING --preset $(1) >/dev/null; cmake --build --preset $(1)'
# The same if a command says that the compiler is there.
BUILD_IF = @if $(1) >/dev/null 2>&1; then $(call BUILD,$(2)); else echo "not built: $(2) ($(3))"; fi
NATIVE := $(shell find native -type f)
CPP := $(filter %.h %.cpp %.inc,$(NATIVE)) $(wildcard tests/native/*.cpp tests/native/*.h tests/native/bochs/*.c \
    benchmarks/*.cpp examples/c/*.c)
# What stands beside the paper's numbers: all accuracies of Table 2, one run for each kind of figure.
PAPER_RUNS = runs/cifar10/resnet20-2t-? runs/cifar10/resnet20-1t-? runs/cifar10/mobilenet-dbq-2t-4-0 \
    runs/comparison/resnet20/lqnet-?B runs/vehicles/width=*

BRIDGES := torchao lightning transformers accelerate huggingface_hub tflite_micro

.PHONY: demo test quick native bridges install-check wheels site check fix bench results paper clean

demo: $(READY)            ## the product's main job, end to end, on real data that needs no download
	$(call BUILD_IF,$(BIN)/python -c "import ziglang",page,pip install ziglang)
	$(BIN)/dbq demo

test: $(READY) check native  ## every check and every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

quick: $(READY)           ## the daily loop: what needs no other process, browser, compiler or long training
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not (native or process or browser or slow)"

native: $(READY)          ## the C++ test programs, plain, with sanitizers and for other processors; dbq.wasm
	$(call BUILD,plain)
	$(call BUILD,asan)
	$(call BUILD,tsan)
	$(call BUILD_IF,$(BIN)/python -c "import ziglang",wasm,pip install ziglang)
	$(call BUILD_IF,command -v aarch64-linux-gnu-g++,aarch64,apt-get install g++-aarch64-linux-gnu)
	$(call BUILD_IF,command -v arm-linux-gnueabihf-g++,armhf,apt-get install g++-arm-linux-gnueabihf)
	$(call BUILD_IF,command -v s390x-linux-gnu-g++,s390x,apt-get install g++-s390x-linux-gnu)

bridges: $(READY)         ## the packages that dbq works in, and the tests that skip without them
	$(BIN)/python -m pip install --quiet -c constraints.txt $(BRIDGES)
	$(BIN)/python -m pytest tests/experiments/bridges tests/networks/test_pretrained.py

install-check: $(READY)   ## the wheel in fresh environments, without torch
	PYTHON=$(BIN)/python tests/install_check.sh

wheels: $(READY)          ## manylinux wheels for x86-64 and ARM in dist, looked into and run; needs auditwheel
	PYTHON=$(BIN)/python tests/wheels.sh dist

site: $(READY)            ## the documentation in build/site, which opens from disk; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

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
	$(BIN)/python -m pip install --quiet -c constraints.txt onnxruntime openvino nncf
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
