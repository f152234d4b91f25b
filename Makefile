# Everything goes through .venv, made on first use with the Python named here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The tests start hundreds of processes: where the environment forbids bytecode files, each of them
# compiles tokmill, and some compile torch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install pretrain-bin sft-bin quick test check frozen bench oracles docs dist clean

help:
	@echo "make pretrain-bin  make .venv, install, turn data_samples/ into shards under out/pretrain, and"
	@echo "                   print what training on them takes (configs/pretrain.toml)"
	@echo "make sft-bin       the same for the chats there: shards with loss masks under out/sft"
	@echo "make test          lint, types, import rules, and all tests"
	@echo "make quick         lint, types, import rules, and the unit tests: about a minute"
	@echo "make check         lint, types and import rules alone"
	@echo "make frozen        add to the datasets that later versions must read: kinds, or a set"
	@echo "make bench         run tokmill and its peers in turn, on data_samples/ or on BENCH_DATA"
	@echo "make oracles       also install what some tests compare with: torch, megatron-core, trl, …"
	@echo "make docs          the pages of docs/ as a site in out/site (python3 -m http.server -d out/site)"
	@echo "make dist          wheel and sdist in dist/, each installed in a new environment and run; what"
	@echo "                   the wheel needs, as a bill of materials, in build/"
	@echo "make clean         remove .venv and out/"

# A .venv that works stays: a second Python on top of it would mix their standard libraries.
$(BIN)/tokmill: pyproject.toml
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/dev: $(BIN)/tokmill
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

install: $(BIN)/tokmill

pretrain-bin: $(BIN)/tokmill
	$(BIN)/tokmill pretrain --config configs/pretrain.toml

sft-bin: $(BIN)/tokmill
	$(BIN)/tokmill sft --config configs/sft.toml

# What has passed is not checked again until a file of Python changes, comes or goes.
CHECKED := $(shell find src bench tests data_samples examples -mindepth 1 -name '*.py' -o -name '*.pyi' -o \
	-type d -not -name __pycache__)

check: $(VENV)/checked

$(VENV)/checked: $(VENV)/dev $(CHECKED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@touch $@

# The unit tests: without whole runs, and without tests that start a process.
WHOLE := api cli docs engines extensions faults folders frozen hostile inspect loader machine mixing \
	oracles page place run second_reader trainers

quick: check
	$(BIN)/python -m pytest -q -n auto --dist worksteal -p tests.fixtures.no_processes \
		$(foreach folder,$(WHOLE),--ignore=tests/$(folder))

test: check
	$(BIN)/python -m pytest -n auto --dist worksteal

# What is there stays as it was written.
frozen: $(VENV)/dev
	$(BIN)/python -m tests.frozen.make

# BENCH_DATA="NAME=FILE …" names corpora in which no text comes twice, BENCH_TOKENIZERS="DIR[:EOS] …"
# tokenizers, BENCH options. Peers that cannot be installed are left out.
$(VENV)/bench: $(BIN)/tokmill
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]" && touch $@

bench: $(VENV)/bench
	$(BIN)/python -m bench $(BENCH)

# Each test that needs one of these skips with a reason where it is missing. litdata comes without
# its dependencies: torchvision would replace torch by a build with 3 GB of CUDA.
ORACLE := -$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

oracles: $(VENV)/dev
	$(ORACLE) torch==2.13.0
	$(ORACLE) -e ".[docs,hub,wordpiece]" tiktoken playwright==1.65.2
	$(ORACLE) trl==1.16.0 transformers==5.23.0
	$(ORACLE) ray==2.60.0 fsspec obstore==0.12.1 "moto[server]==5.2.5" boto3==1.43.117 google-cloud-storage
	$(ORACLE) datatrove==0.10.1 humanize grain==0.2.18
	$(ORACLE) --no-deps megatron-core==0.16.1 peft==0.21.2 bitsandbytes==0.50.2
	$(ORACLE) --no-deps ai2-olmo-core==3.0.0 bettermap==1.3.1 cached_path==1.8.10 \
		dataclass-extensions==0.5.0
	$(ORACLE) --no-deps axolotl==0.19.0 addict==2.4.0 megatron-bridge==0.3.1 torchtitan==0.3.0 \
		torchdata==0.11.0 tyro==1.0.17 docstring-parser==0.18.0 typeguard==4.6.0 shtab==1.13.0 spmd_types==0.3.1
	$(ORACLE) --no-deps nemo-automodel==0.7.0
	$(ORACLE) --no-deps llamafactory==0.9.5 Pillow omegaconf==2.3.0 antlr4-python3-runtime==4.9.3
	$(ORACLE) --no-deps ms-swift==4.6.0 modelscope modelscope-hub json_repair einops binpacking
	$(ORACLE) aiohttp
	$(ORACLE) --no-deps lightning==2.6.6 torchmetrics==1.9.0
	$(ORACLE) --no-deps litdata==0.2.76 lightning-utilities obstore tifffile
	@# Compiled here once, not by every worker of the tests.
	-@$(BIN)/python -c "import transformers.trainer, trl.trainer.sft_trainer, peft" >/dev/null 2>&1
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		timeout 300 sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends \
		chromium' >/dev/null 2>&1; } || echo "no chromium: tests of pages in a browser are skipped"

$(VENV)/docs: $(BIN)/tokmill
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Both are installed as users install them, and make the datasets of data_samples/ and their exports.
# Only packages stand in dist/, so that all of it can be uploaded; build/ has the bill of materials.
dist: $(VENV)/dev
	rm -rf dist build
	$(BIN)/hatchling build -d dist
	for file in dist/*.whl dist/*.tar.gz; do .ci/smoke $$file $(PYTHON) || exit 1; done

clean:
	rm -rf $(VENV) out dist build
