# attn.h alone is the library and needs no build. This file is for its tests and examples, and for those who want a
# compiled library all the same (make lib, make install); everything lands in build/.
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
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib

# Structs may grow from 1.x to 1.y, so that the soname has both numbers
VERSION = $(shell awk '/define ATTN_VERSION/ { n = $$3; printf "%d.%d.%d", n / 10000, n / 100 % 100, n % 100 }' attn.h)
SO      = libattn.so.$(VERSION)
SONAME  = $(basename $(SO))
IN      = $(DESTDIR)$(PREFIX)
INLIB   = $(DESTDIR)$(LIBDIR)

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
same: demo ## does this machine give the bits of all others? One number (ARGS=-v: part by part, and by section of SPEC.md)
	@[ '$(ARGS)' != -v ] || $(MAKE) --no-print-directory build/spec/vectors
	@[ '$(ARGS)' != -v ] || $(RUN) build/spec/vectors -s tests/spec/vectors.txt

spec: ## tests/SPEC.md: its test vectors, and the second implementation of it in Python (needs NumPy; PYTHON=)

translate: build/translate ## German to English and what the model looks at (TEXT="Der Hund läuft."; ARGS=--break)
	@$(RUN) build/translate $(ARGS) $(if $(TEXT),"$$TEXT")

test: build/flags ## run the tests (a minute from scratch, 20 seconds again; ARGS='masks -s 7': some, another seed)
	@[ -n "$$(find build/test -newer attn.h -newer build/flags 2> /dev/null)" ] || \
	    echo 'compiling attn.h and its tests: 40 seconds on two cores'
	@$(MAKE) --no-print-directory $(PARALLEL) build/test
	@$(RUN) build/test $(if $(RUN),,-j $(JOBS)) $(ARGS)

strict: ## compile under every standard, compiler and flag there is here: silent when fine

examples: ## build every example with its own cc line, compare with the output it shows

mpi: ## one sequence over 1 to 4 MPI ranks: the same hashes, the bytes of the formula (Open MPI or MPICH)

page: ## build build/index.html, the page in one file (needs clang 16; ARGS=examples/web/index.html for a release)
	@sh examples/web/build.sh $(ARGS)

page-test: ## the page in a headless Chromium, compared with the C library (CHROMIUM=program); loud skips without
	@sh tests/page.sh

python: ## examples/python with NumPy: against doubles, what it refuses, where it finds the library (PYTHON=)
readme: ## build and run every block of code in README.md and what it links to; links and headings

conformance: ## the ONNX standard's node tests of Attention (ONNX=onnx/backend/test/data/node of a clone)
	@if [ -d '$(ONNX)' ]; then $(MAKE) --no-print-directory build/conformance && $(RUN) build/conformance '$(ONNX)'; \
	    else echo "conformance: SKIPPED, there is no folder $(ONNX); set ONNX"; fi

embed: ## search by meaning (MODEL=folder of a BERT-type model FILE=lines.txt Q='a question' ARGS='-k 3')
	@sh examples/embed/search.sh embed $(ARGS)
embed-bench: ## that model in turns with ONNX Runtime (PYTHON that has numpy onnx onnxruntime)
	@sh examples/embed/search.sh embed-bench

models: ## trained models with published numbers (MODELS=folder, ../shared/models): outputs, and the same bits every way

translate-test: ## the translator's sentences, BLEU, same bits every way; damaged files, pictures
	@sh tests/translate.sh $(ARGS)

golden: ## outputs hashed under other compilers and flags: the same bits

mutate: ## break attn.h on purpose, one place at a time: the tests must notice

new-isa: ## add a made-up instruction set to a copy by the three steps of section 11: suite and golden hashes
	@sh tests/new_isa.sh

soak: build/soak ## random work in one process for 10 minutes, many callers at once (ARGS=60: minutes; QUICK=1: 20 s)
	@$(RUN) build/soak $(if $(QUICK),-q) $(ARGS)

prove: ## what Frama-C and Gappa prove, and mistakes they must notice: all with ARGS=all (see SOUNDNESS.md)
	@sh tests/prove.sh $(ARGS)

sanitize: ## the tests under every sanitizer there is here, and valgrind (QUICK=1: 7 minutes; ARGS='msan tsan')

analyze: ## gcc -fanalyzer, clang-tidy and cppcheck over attn.h, examples and tests (QUICK=1: gcc without the kernels)

count: ## instructions a call beside the committed table: none may grow by 2 % (ARGS=--update writes the table)

small: ## parts left out: the suites that remain, Cortex-M7, M4 and M3 in qemu, below 32 KB with newlib
size: ## bytes of code per backend and option, and compile times

bench: build/bench/bench ## attn.h against the libraries here: bench.csv, .svg, .md (ARGS='--quick', '--cold --half')
	@build/bench/bench $(ARGS)
	@build/bench/plot build/bench.csv build/libraries.svg build/bench.svg build/bench.md

bench-peers: ## install the libraries to compare with (apt-get when root, pip), then make bench
	@sh tests/bench/peers.sh
	@rm -f build/bench/bench && $(MAKE) --no-print-directory bench

sweep: build/bench/bench ## 1,000 random calls, hot and cold: is the plain loop ever faster? (ARGS=-f: features; -h)
	@build/bench/sweep $(ARGS)

turns: ## this attn.h and another one in turns, over the benchmark's shapes (OLD=commit or file; ARGS='--cold S6')
	@sh tests/bench/turns.sh $(OLD)
	@build/bench/turns $(ARGS)

coverage: ## every line and branch of attn.h, lines and functions of its kernels; coverage.txt excuses (QUICK=1: a part)

cross: ## the golden hashes on every architecture and compiler that can run here (QUICK=1: 4 minutes)

fuzz: ## arguments, caches, layers and masks from random bytes, TIME seconds each (default 60)

lib: build/$(SO) ## build/libattn.a and build/libattn.so (with ATTN_THREADS), for those who would rather link one
install: lib ## header, libraries, attn.pc and licence into PREFIX (default /usr/local; DESTDIR=folder: below that)
	install -d '$(IN)/include' '$(IN)/share/doc/attn' '$(INLIB)/pkgconfig'
	install -m 644 attn.h '$(IN)/include' && install -m 644 LICENSE '$(IN)/share/doc/attn'
	install -m 644 build/libattn.a build/$(SO) '$(INLIB)'
	cd '$(INLIB)' && ln -sf $(SO) $(SONAME) && ln -sf $(SONAME) libattn.so
	printf '%s\n' 'Name: attn' 'Description: attention for inference in plain C' 'Version: $(VERSION)' \
	    'Libs.private: -pthread' 'Cflags: -I$(PREFIX)/include -DATTN_THREADS=' 'Libs: -L$(LIBDIR) -lattn' \
	    > '$(INLIB)/pkgconfig/attn.pc'
	@echo 'A program does not find libattn.so? Run ldconfig, or set LD_LIBRARY_PATH=$(LIBDIR)'
uninstall: ## take away what make install with the same PREFIX and DESTDIR has put there
	cd '$(INLIB)' && rm -f libattn.a libattn.so $(SONAME) $(SO) pkgconfig/attn.pc
	rm -f '$(IN)/include/attn.h' '$(IN)/share/doc/attn/LICENSE' && rmdir '$(IN)/share/doc/attn'
library-test: ## that library, installed and used: pkg-config, CMake, Meson, a header of another version
	@sh tests/library.sh

# those that are a script of the same name
strict examples mpi python readme models golden mutate sanitize analyze count small size coverage cross fuzz spec:
	@sh tests/$@.sh $(ARGS)

clean: ## remove build/ and what an example's cc line leaves
	rm -rf build a.out a.exe

build/translate build/embed build/embed-bench: $(wildcard examples/*/*.[ch]) examples/svg.h attn.h build/flags
	@echo 'compiling attn.h with it: 10 to 30 seconds'
	@$(CC) $(CFLAGS) -I. -DATTN_THREADS examples/$(if $(findstring -,$@),embed/bench,$(@F)/$(@F)).c -o $@ -pthread

build/$(SO): attn.h build/flags
	@echo 'compiling the library: 10 to 30 seconds'
	@printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > build/attn.c
	@$(CC) $(CFLAGS) -fPIC -DATTN_THREADS -I. -c build/attn.c -o build/attn.o
	@rm -f build/libattn.a && $(AR) -rcs build/libattn.a build/attn.o
	@$(CC) $(CFLAGS) -shared -Wl,-soname,$(SONAME) build/attn.o -o $@ -pthread
	@ln -sf $(SO) build/$(SONAME) && ln -sf $(SONAME) build/libattn.so

build/spec/vectors: tests/spec/vectors.c build/$(SO)
	@mkdir -p build/spec
	@$(CC) $(CFLAGS) -Wall -Wextra -I. tests/spec/vectors.c build/libattn.a -o $@ -pthread
build/test: $(OBJECTS)
	@$(CC) $(CFLAGS) $(OBJECTS) -o $@ -lm -pthread
build/obj/%.o: tests/%.c attn.h $(wildcard tests/*.h) build/flags
	@$(CC) $(FLAGS) $(QUICKLY) -c $< -o $@
# implementations of their own, for hooks: who says nothing of flags, or QUICK=1, does not wait for the optimiser there
build/obj/private.o: $(wildcard tests/private/*.h)
build/obj/private.o build/obj/test_pool.o: QUICKLY = $(if $(QUICK),-O1,$(if $(CFLAGS:-O2=),,-O1))

build/conformance: $(wildcard tests/onnx/*) build/obj/harness.o build/obj/attn_impl.o
	@$(CC) $(FLAGS) $(wildcard tests/onnx/*.c) build/obj/harness.o build/obj/attn_impl.o -o $@ -lm -pthread
build/soak: tests/soak/soak.c tests/harness.c tests/cases.c attn.h $(wildcard tests/*.h) build/flags
	@$(CC) $(FLAGS) $(if $(QUICK),-O1) tests/soak/soak.c tests/harness.c tests/cases.c -o $@ -lm -pthread
build/bench/bench: $(wildcard tests/bench/*) tests/attn_impl.c attn.h build/flags
	@sh tests/bench/build.sh

# another compiler or other flags: start afresh
build/flags: FORCE
	@mkdir -p build/obj; echo '$(CC) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS)' > $@

FORCE:
.PHONY: help demo same prove test strict examples readme conformance golden mutate coverage soak sanitize analyze size
.PHONY: spec sweep turns cross embed bench bench-peers count models mpi new-isa fuzz translate translate-test page page-test
.PHONY: clean FORCE lib install uninstall library-test python small
