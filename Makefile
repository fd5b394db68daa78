# `make` prints what can be made. Everything runs in .venv, which is made on first use.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SCALE ?= laptop
DEVICE ?= cpu
# Runs at once, one thread each (nproc would take OMP_NUM_THREADS for the number of cores); on a GPU one.
JOBS ?= $(if $(filter cuda,$(DEVICE)),1,$(shell env -u OMP_NUM_THREADS nproc))
# FORCE=1 runs again what is finished.
FORCE ?=
OUTPUT ?= outputs
# ON=slurm submits the runs (conf/cluster/slurm.yaml; CLUSTER="KEY=VALUE KEY=VALUE" beside), PART=1/4 does a quarter of
# them, TRACKING_URI=http://... tells an MLflow server: docs/cluster.md.
ON ?=
CLUSTER ?=
PART ?=
TRACKING_URI ?=
ifeq ($(strip $(value OUTPUT)),)
$(error OUTPUT is empty; it must be the name of a folder)
endif
# As it was typed, whatever characters it has.
export REPRO_OUTPUT := $(value OUTPUT)
PORT ?= 5000
KILLS ?= 200
# README=1 brings the README's table up to date instead of writing the report.
README ?=
# Of verify: at most so many iterations; RECORD=1 keeps what it finds with the results. Of it and of a target: so many
# seeds, the first ones; these sweeps alone. Of a target: PUBLISHED=1 takes what is published of its runs, and runs the rest.
RECORD ?=
ITERATIONS ?=
SEEDS ?=
SWEEP ?=
PUBLISHED ?=
COMMANDS := help list plan report figures collect draw publish verify claims stale test test-all test-quick chaos bench ui lint format clean
TARGETS := $(sort $(basename $(notdir $(wildcard paper_figures/*.md))))
FIGURE_FLAGS = --scale '$(SCALE)' --jobs '$(JOBS)' --output "$$REPRO_OUTPUT" --device '$(DEVICE)' $(if $(filter-out 0 no false,$(FORCE)),--force) \
  $(if $(TRACKING_URI),--tracking-uri '$(TRACKING_URI)') $(if $(SEEDS),--seeds '$(SEEDS)') \
  $(if $(filter-out 0 no false,$(PUBLISHED)),--published)
ELSEWHERE = $(if $(ON),--on '$(ON)' $(CLUSTER:%=--cluster '%')) $(if $(PART),--part '$(PART)')

# Of a word, the known one that is most like it, if one is to such a degree: $(call nearest,DEGREE,WORD,KNOWN).
NEAREST := import difflib, sys; alike, word, *known = sys.argv[1:]; of = {k.lower(): k for k in known}; print(*(of[n] for n in difflib.get_close_matches(word.lower(), of, 1, float(alike))))
nearest = $(shell $(PYTHON) -c '$(NEAREST)' $1 '$2' $3)

# A variable that is nearly one of ours is a slip; others are the environment's of what is run.
VARIABLES := AGAINST CLUSTER DEVICE FORCE ITERATIONS JOBS KILLS ON OUTPUT PART PORT PUBLISHED PYTHON README RECORD \
  REFRESH SCALE SEEDS SWEEP TARGET TORCH_INDEX TRACKING_URI VENV
OTHERS := $(filter-out $(VARIABLES),$(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v)))
$(foreach v,$(OTHERS),$(foreach near,$(call nearest,0.8,$v,$(VARIABLES)),$(error make knows no variable $v (did you mean $(near)?))))

# What a command takes beside what the environment is made with; one that is ours, but of other commands, is a slip, too.
USES_figures := SCALE JOBS OUTPUT DEVICE FORCE SEEDS SWEEP PUBLISHED TRACKING_URI ON CLUSTER PART
USES_collect := TARGET SCALE JOBS OUTPUT DEVICE SEEDS PUBLISHED TRACKING_URI
USES_draw := TARGET SCALE OUTPUT
USES_publish := TARGET SCALE OUTPUT FORCE
USES_plan := TARGET SCALE JOBS OUTPUT DEVICE FORCE SEEDS PUBLISHED TRACKING_URI SWEEP
USES_verify := TARGET SCALE JOBS OUTPUT DEVICE ITERATIONS SEEDS SWEEP RECORD
USES_claims := TARGET SCALE
USES_stale := TARGET SCALE REFRESH
USES_report := OUTPUT README
USES_test := JOBS
USES_test-all := JOBS
USES_test-quick := JOBS
USES_chaos := KILLS OUTPUT
USES_bench := OUTPUT AGAINST
USES_ui := TARGET SCALE OUTPUT PORT
takes = $(USES_$(if $(filter $1,$(TARGETS)),figures,$1))
GIVEN := $(foreach v,$(VARIABLES),$(if $(filter command,$(origin $v)),$v))
ASKED := $(or $(MAKECMDGOALS),help)
UNUSED := $(filter-out PYTHON VENV TORCH_INDEX $(foreach g,$(ASKED),$(call takes,$g)),$(GIVEN))
ifeq ($(filter-out $(COMMANDS) $(TARGETS),$(ASKED)),)
$(foreach v,$(UNUSED),$(error make $(ASKED) does nothing with $v; it takes $(or $(sort $(foreach g,$(ASKED),$(call takes,$g))),no variable)))
endif

# Nothing is done to a target that was not named.
$(foreach g,$(filter collect plan draw publish verify,$(ASKED)),$(if $(TARGET),,$(error TARGET is missing: make $g TARGET=figure1)))

# Of what is published: a scale only if one is asked for; repeated is what is published at laptop, listed are all.
PUBLISHED_SCALE = $(if $(filter file,$(origin SCALE)),,--scale '$(SCALE)')

# One run is one thread: several runs beat several threads on networks this small.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# MLflow reports how it is used to its makers unless this is set.
export MLFLOW_DISABLE_TELEMETRY ?= true

.PHONY: $(COMMANDS) $(TARGETS)

help:  ## print this
	@grep -hE '^[a-z$$()A-Z-]+:.*?## ' $(MAKEFILE_LIST) | sed 's/$$(TARGETS)/TARGET/' | awk -F ':.*?## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo "  targets: $(TARGETS)"
	@echo "  variables: SCALE=smoke|laptop|gpu|night|paper (laptop)  JOBS=runs at once (cores)  FORCE=1  SEEDS=first so many  SWEEP=these  PUBLISHED=1  DEVICE=cpu|cuda  OUTPUT=folder  ON=slurm|local"

list: $(VENV)/runtime  ## print every figure and table with what it shows, its verdicts and minutes
	@$(RUN) -m repro.figure list

report: $(VENV)/runtime  ## write a page of all published verdicts, OUTPUT/report.html (README=1: the README's table)
	@$(RUN) -m repro.report --output "$$REPRO_OUTPUT" $(if $(filter-out 0 no false,$(README)),--readme)

$(TARGETS): $(VENV)/runtime $(if $(ON),$(VENV)/cluster)  ## run what is not finished, draw, judge the claims; ON=slurm: submit it
	@$(RUN) -m repro.figure $@ $(FIGURE_FLAGS) $(ELSEWHERE) $(foreach sweep,$(SWEEP),--sweep '$(sweep)')

figures: $(VENV)/runtime $(if $(ON),$(VENV)/cluster)  ## make all of them; trainings that several ask for are done once
	@$(RUN) -m repro.figure figures $(FIGURE_FLAGS) $(ELSEWHERE) $(foreach sweep,$(SWEEP),--sweep '$(sweep)')

collect: $(VENV)/runtime  ## take in what a cluster has finished of TARGET (or figures), and draw it if that is all
	@$(RUN) -m repro.figure $(TARGET) --collect $(FIGURE_FLAGS)

plan: $(VENV)/runtime  ## what making TARGET (or figures) would do and how long it may take; runs nothing
	@$(RUN) -m repro.figure $(TARGET) --plan $(FIGURE_FLAGS) $(foreach sweep,$(SWEEP),--sweep '$(sweep)')

draw: $(VENV)/runtime  ## draw TARGET again from its exported CSV, running nothing
	@$(RUN) -m repro.figure $(TARGET) --draw $(FIGURE_FLAGS)

publish: $(VENV)/runtime  ## copy TARGET's figure to paper_figures/results and update its page
	@$(RUN) -m repro.figure $(TARGET) --publish $(FIGURE_FLAGS)

verify: $(VENV)/runtime  ## repeat TARGET's first iterations, compare with what is published (SCALE= ITERATIONS= SEEDS= SWEEP= RECORD=1)
	@$(RUN) -m repro.verify $(TARGET) --jobs '$(JOBS)' --output "$$REPRO_OUTPUT" --device '$(DEVICE)' $(PUBLISHED_SCALE) \
	  $(if $(ITERATIONS),--iterations '$(ITERATIONS)') $(if $(SEEDS),--seeds '$(SEEDS)') $(foreach sweep,$(SWEEP),--sweep '$(sweep)') \
	  $(if $(filter-out 0 no false,$(RECORD)),--record)

claims: $(VENV)/runtime  ## judge all published data, or TARGET's, by today's rules
	@$(RUN) -m repro.verify $(TARGET) --claims $(PUBLISHED_SCALE)

stale: $(VENV)/runtime  ## list what code has changed since results were made; REFRESH=1 says so on the pages
	@$(RUN) -m repro.verify $(TARGET) --stale $(if $(filter-out 0 no false,$(REFRESH)),--refresh) $(PUBLISHED_SCALE)

test: $(VENV)/test  ## run the tests but those of four seconds or more, 11 minutes on two cores
	@$(RUN) -m pytest -m "not exhaustive" -n $(JOBS) --dist loadfile tests

test-all: $(VENV)/test  ## run all of them
	@$(RUN) -m pytest -n $(JOBS) --dist loadfile tests

test-quick: $(VENV)/test  ## the quick subset, some minutes
	@$(RUN) -m pytest -m "not slow and not exhaustive" -n $(JOBS) --dist loadfile tests

chaos: $(VENV)/test  ## kill and disturb all kinds of run 200 times, and see what is left of it (KILLS=200)
	@$(RUN) -m tests.chaos --kills '$(KILLS)' --report "$$REPRO_OUTPUT/chaos.json"

bench: $(VENV)/test  ## measure speed beside OpenSpiel's, in one run; AGAINST=commit: beside another commit's
	@$(RUN) -m repro.bench --output "$$REPRO_OUTPUT/bench$(if $(AGAINST),-against).json" $(if $(AGAINST),--against '$(AGAINST)')

ui: $(VENV)/runtime  ## the MLflow UI, on this machine only; TARGET=figure1: with a link to its runs (SCALE= PORT=5000)
	@exec $(RUN) -m repro.ui $(TARGET) --scale '$(SCALE)' --output "$$REPRO_OUTPUT" --port '$(PORT)'

lint: $(VENV)/test  ## check style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/test  ## format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:  ## remove the environment and caches; outputs stay
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Whatever is no target.
.DEFAULT:
	@echo "error: make knows no target '$@'$(or $(patsubst %, (did you mean %?).,$(call nearest,0.6,$@,$(COMMANDS) $(TARGETS))),; make without a target lists them.)" >&2; exit 1

# torch is installed first and pinned: left to itself, pip fetches the newest build with gigabytes of CUDA packages.
# TORCH_INDEX=URL takes torch from another package index, such as PyTorch's own one for CPU-only builds.
$(VENV)/runtime: pyproject.toml constraints.txt
	@echo "making the environment in $(VENV), or bringing it up to date (a few minutes at the most)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c constraints.txt torch
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/cluster: $(VENV)/runtime
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	@touch $@

$(VENV)/test: $(VENV)/runtime
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
