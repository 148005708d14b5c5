# The library is attn.h alone and needs no build. This file is for its tests and examples; everything lands in build/.
#
#   make test CC=clang CFLAGS='-O3 -march=native'      another compiler, other flags
#   make test ARGS='masks -s 7'                        some tests, another seed (build/test -h)
#   make test RUN='valgrind -q'                        under valgrind, qemu-aarch64 -L ..., wine

CFLAGS ?= -O2
RUN    ?=
ARGS   ?=
ONNX   ?= ../shared/onnx-attention
DEMO   ?= 01_three_masks
JOBS   ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WARN   := -Wall -Wextra

FLAGS  = -std=c99 $(WARN) $(CFLAGS) -I. -Itests -DATTN_SERIAL_FLOPS=0
# -j for the objects, but not where make was given one already
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))
TESTS := $(sort $(wildcard tests/*.c))
OBJECTS := $(TESTS:tests/%.c=build/obj/%.o)

export CC CFLAGS RUN MAKE

help: ## say what can be made (this list)
	@echo "attn.h: copy the header, there is nothing to build. For its tests and examples:"
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1 \2/p' Makefile | \
	    while read -r t d; do printf '  make %-12s %s\n' "$$t" "$$d"; done
	@echo "CC, CFLAGS, RUN (qemu, wine, valgrind) and ARGS can be set: see the top of the Makefile."

demo: ## look at the three masks of a translation model (needs only cc; DEMO=13_encoder_decoder: another example)
	@mkdir -p build
	@echo 'compiling examples/$(DEMO).c and attn.h with it: 10 to 30 seconds'
	@$(CC) $(CFLAGS) -I. examples/$(DEMO).c -o build/$(DEMO)
	@$(RUN) build/$(DEMO) $(ARGS)
same: DEMO = 23_same_bits
same: demo ## does this machine give the bits of all others? One number (ARGS=-v: part by part)

translate: build/translate ## German to English and what the model looks at (TEXT="Der Hund läuft."; ARGS=--break)
	@$(RUN) build/translate $(ARGS) $(if $(TEXT),"$$TEXT")

test: build/flags ## run the tests (a minute from scratch, 20 seconds again; ARGS='masks -s 7': some, another seed)
	@[ -n "$$(find build/test -newer attn.h -newer build/flags 2> /dev/null)" ] || \
	    echo 'compiling attn.h and its tests: 40 seconds on two cores'
	@$(MAKE) --no-print-directory $(PARALLEL) build/test
	@$(RUN) build/test $(if $(RUN),,-j $(JOBS)) $(ARGS)

strict: ## compile under every standard, compiler and flag there is here: silent when fine
	@sh tests/strict.sh

examples: ## build every example with its own cc line, compare with the output it shows
	@sh tests/examples.sh

mpi: ## one sequence over 1 to 4 MPI ranks: the same hashes, the bytes of the formula (Open MPI or MPICH)
	@sh tests/mpi.sh

page: ## build examples/web/index.html, the page in one file (needs clang 16 for wasm: examples/web/build.sh)
	@sh examples/web/build.sh

page-test: ## the page in a headless Chromium, compared with the C library (CHROMIUM=program); loud skips without
	@sh tests/page.sh

readme: ## build and run every block of code in README.md and examples/PORTING.md
	@sh tests/readme.sh

conformance: ## the ONNX standard's node tests of Attention (ONNX=onnx/backend/test/data/node of a clone)
	@if [ -d '$(ONNX)' ]; then $(MAKE) --no-print-directory build/conformance && $(RUN) build/conformance '$(ONNX)'; \
	    else echo "conformance: SKIPPED, there is no folder $(ONNX); set ONNX"; fi

embed: ## search by meaning (MODEL=folder of a BERT-type model FILE=lines.txt Q='a question' ARGS='-k 3')
	@sh examples/embed/search.sh embed $(ARGS)
embed-bench: ## that model in turns with ONNX Runtime (PYTHON that has numpy onnx onnxruntime)
	@sh examples/embed/search.sh embed-bench

models: ## trained models with published numbers (MODELS=folder, ../shared/models): outputs, and the same bits every way
	@sh tests/models.sh $(ARGS)

translate-test: ## the translator's sentences, BLEU, same bits every way; damaged files, pictures
	@sh tests/translate.sh $(ARGS)

golden: ## outputs hashed under other compilers and flags: the same bits
	@sh tests/golden.sh

mutate: ## break attn.h on purpose, one place at a time: the tests must notice
	@sh tests/mutate.sh $(ARGS)

new-isa: ## add a made-up instruction set to a copy by the three steps of section 11: suite and golden hashes
	@sh tests/new_isa.sh

soak: build/soak ## random work in one process for 10 minutes, many callers at once (ARGS=60: minutes; QUICK=1: 20 s)
	@$(RUN) build/soak $(if $(QUICK),-q) $(ARGS)

sanitize: ## the tests under every sanitizer there is here, and valgrind (QUICK=1: 7 minutes; ARGS='msan tsan')
	@sh tests/sanitize.sh $(ARGS)

analyze: ## gcc -fanalyzer, clang-tidy and cppcheck over attn.h, examples and tests (QUICK=1: gcc without the kernels)
	@sh tests/analyze.sh $(ARGS)

count: ## instructions a call beside the committed table: none may grow by 2 % (ARGS=--update writes the table)
	@sh tests/count.sh $(ARGS)

size: ## bytes of code per backend, and compile times
	@sh tests/size.sh

bench: build/bench/bench ## attn.h against the libraries here: bench.csv, .svg, .md (ARGS='--quick', '--cold --half')
	@build/bench/bench $(ARGS)
	@build/bench/plot build/bench.csv build/libraries.svg build/bench.svg build/bench.md

bench-peers: ## install the libraries to compare with (apt-get when root, pip), then make bench
	@sh tests/bench/peers.sh
	@rm -f build/bench/bench && $(MAKE) --no-print-directory bench

sweep: build/bench/bench ## 1,000 random calls, hot and cold: is the plain loop ever faster? (ARGS=-f: features; -h)
	@build/bench/sweep $(ARGS)

coverage: ## every line and branch of attn.h, lines and functions of its kernels; coverage.txt excuses (QUICK=1: a part)
	@sh tests/coverage.sh $(ARGS)

cross: ## the golden hashes on every architecture and compiler that can run here (QUICK=1: 4 minutes)
	@sh tests/cross.sh

fuzz: ## arguments, caches, layers and masks from random bytes, TIME seconds each (default 60)
	@sh tests/fuzz.sh $(ARGS)

clean: ## remove build/ and what an example's cc line leaves
	rm -rf build a.out a.exe

build/translate build/embed build/embed-bench: $(wildcard examples/*/*.[ch]) examples/svg.h attn.h build/flags
	@echo 'compiling attn.h with it: 10 to 30 seconds'
	@$(CC) $(CFLAGS) -I. -DATTN_THREADS examples/$(if $(findstring -,$@),embed/bench,$(@F)/$(@F)).c -o $@ -pthread

build/test: $(OBJECTS)
	@$(CC) $(CFLAGS) $(OBJECTS) -o $@ -lm -pthread
build/obj/%.o: tests/%.c attn.h $(wildcard tests/*.h) build/flags
	@$(CC) $(FLAGS) $(QUICKLY) -c $< -o $@
# implementations of their own, for hooks: who says nothing of flags does not wait for the optimiser there
$(patsubst %,build/obj/%.o,args_memory layers_memory test_paths test_storage): QUICKLY = $(if $(CFLAGS:-O2=),,-O1)

build/conformance: $(wildcard tests/onnx/*) tests/harness.c tests/attn_impl.c attn.h $(wildcard tests/*.h) build/flags
	@$(CC) $(FLAGS) $(wildcard tests/onnx/*.c) tests/harness.c tests/attn_impl.c -o $@ -lm -pthread
build/soak: tests/soak/soak.c tests/harness.c tests/cases.c attn.h $(wildcard tests/*.h) build/flags
	@$(CC) $(FLAGS) tests/soak/soak.c tests/harness.c tests/cases.c -o $@ -lm -pthread
build/bench/bench: $(wildcard tests/bench/*) tests/attn_impl.c attn.h build/flags
	@sh tests/bench/build.sh

# another compiler or other flags: start afresh
build/flags: FORCE
	@mkdir -p build/obj
	@echo '$(CC) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS)' > $@

FORCE:
.PHONY: help demo same test strict examples readme conformance golden mutate coverage soak sanitize analyze size sweep cross
.PHONY: embed bench bench-peers count models mpi new-isa fuzz translate translate-test page page-test clean FORCE
