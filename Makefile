# attn.h alone is the library and needs no build. This file runs its tests and examples, and can build a
# library. Everything it makes is in build/. `make` lists the targets.
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
IN      = $(DESTDIR)$(PREFIX)
INLIB   = $(DESTDIR)$(LIBDIR)

# Structs may grow from 1.x to 1.y, so the soname has both numbers
VERSION = $(shell awk '/define ATTN_VERSION/ { n = $$3; printf "%d.%d.%d", n / 10000, n / 100 % 100, n % 100 }' attn.h)
MINOR   = $(basename $(VERSION))
ifeq ($(shell uname -s),Darwin)
SO      = libattn.$(VERSION).dylib
SONAME  = libattn.$(MINOR).dylib
SOLINK  = libattn.dylib
SOPATH  = DYLD_LIBRARY_PATH
SHARED  = -dynamiclib -install_name '$(LIBDIR)/$(SONAME)'
else
SO      = libattn.so.$(VERSION)
SONAME  = libattn.so.$(MINOR)
SOLINK  = libattn.so
SOPATH  = LD_LIBRARY_PATH
SHARED  = -shared -Wl,-soname,$(SONAME)
endif

FLAGS  = -std=c99 $(WARN) $(CFLAGS) -I. -Itests/support -DATTN_SERIAL_FLOPS=0
# -j for the objects, but not where make was given one already
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))
TESTS := $(wildcard tests/suites/*.c tests/support/*.c)
HEADERS := $(wildcard tests/support/*.h)
# the three that compile attn.h first: they take longest
SLOW    := build/obj/test_stack.o build/obj/attn_impl.o build/obj/private.o
OBJECTS := $(SLOW) $(filter-out $(SLOW),$(sort $(patsubst %.c,build/obj/%.o,$(notdir $(TESTS)))))
vpath %.c tests/suites tests/support

export CC CFLAGS RUN MAKE

help: ## list these targets
	@awk '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z][a-z-]*:.*## / { i = index($$0, ":"); j = index($$0, "## "); \
	        printf "  make %-14s %s\n", substr($$0, 1, i - 1), substr($$0, j + 3) }' Makefile

##@ Use. attn.h needs no build: copy the header. These targets run examples, or build a library.
demo: ## print the three masks of a translation model (DEMO=13_encoder_decoder: another example)
	@mkdir -p build
	@echo 'compiling examples/$(DEMO).c and attn.h: 10 to 20 seconds'
	@$(CC) $(CFLAGS) -I. examples/$(DEMO).c -o build/$(DEMO)
	@$(RUN) build/$(DEMO) $(ARGS)
same: ## print one number that is the same on every machine with fused multiply-add (ARGS=-v: by section)
same: $(if $(filter -v,$(ARGS)),build/spec/vectors)
	@mkdir -p build
	@echo 'compiling tests/same/same_bits.c and attn.h: 10 to 20 seconds'
	@$(CC) $(CFLAGS) -I. tests/same/same_bits.c -o build/same_bits
	@s=0; [ '$(ARGS)' != -v ] || $(RUN) build/spec/vectors -s tests/spec/vectors.txt || s=$$?; \
	    $(RUN) build/same_bits $(ARGS) && exit $$s

translate: ## translate German, with the words it attends to (TEXT="Der Hund läuft."; ARGS=--break)
translate: build/translate
	@$(RUN) build/translate $(ARGS) $(if $(TEXT),"$$TEXT")

embed: ## search by meaning (MODEL=folder of a BERT model FILE=lines.txt Q='a question' ARGS='-k 3')
	@sh examples/embed/search.sh embed $(ARGS)

listen: ## write down speech with Whisper (MODEL=ggml-tiny.en.bin WAV=talk.wav ARGS='-w -16'; without MODEL: help)
listen: $(if $(MODEL),build/listen)
	@MODEL='$(MODEL)' WAV='$(WAV)' sh examples/listen/listen.sh $(ARGS)

page: ## build build/index.html, the page in one file (needs clang 16)
	@sh examples/web/build.sh $(ARGS)

lib: ## build build/libattn.a and the shared library, with ATTN_THREADS
lib: build/$(SO)

install: ## install header, libraries, attn.pc, licence (PREFIX=/usr/local LIBDIR= DESTDIR=)
install: lib
	install -d '$(IN)/include' '$(IN)/share/doc/attn' '$(INLIB)/pkgconfig'
	install -m 644 attn.h '$(IN)/include' && install -m 644 LICENSE '$(IN)/share/doc/attn'
	install -m 644 build/libattn.a build/$(SO) '$(INLIB)'
	cd '$(INLIB)' && ln -sf $(SO) $(SONAME) && ln -sf $(SONAME) $(SOLINK)
	printf '%s\n' 'Name: attn' 'Description: attention for inference in plain C' 'Version: $(VERSION)' \
	    'Libs.private: -pthread' 'Cflags: -I$(PREFIX)/include -DATTN_THREADS=' 'Libs: -L$(LIBDIR) -lattn' \
	    > '$(INLIB)/pkgconfig/attn.pc'
	@echo 'If a program does not find $(SOLINK), run ldconfig or set $(SOPATH)=$(LIBDIR)'

uninstall: ## remove the files that make install with the same PREFIX and DESTDIR installed
	cd '$(INLIB)' && rm -f libattn.a $(SOLINK) $(SONAME) $(SO) pkgconfig/attn.pc
	rm -f '$(IN)/include/attn.h' '$(IN)/share/doc/attn/LICENSE' && rmdir '$(IN)/share/doc/attn'

##@ Develop. Checks for a change of attn.h; tests/README.md has a table. QUICK=1 shortens many of them.
test: ## run the tests: 1 minute, less if built (ARGS='masks -s 7': by name, another seed)
test: build/flags
	@[ -n "$$(find build/test -newer attn.h -newer build/flags 2> /dev/null)" ] || \
	    echo 'compiling attn.h and its tests: 30 to 40 seconds on two cores'
	@$(MAKE) --no-print-directory $(PARALLEL) build/test
	@$(RUN) build/test $(if $(RUN),,-j $(JOBS)) $(ARGS)

strict: ## compile under every standard, compiler and warning that is available here
golden: ## hash outputs under other compilers and flags: the bits must be the same
examples: ## build every example with its own cc line and compare its output
readme: ## build and run the code in README.md and other documents; check links and headings

conformance: ## run ONNX's node tests of Attention (ONNX=onnx/backend/test/data/node of a clone)
	@if [ -d '$(ONNX)' ]; then $(MAKE) --no-print-directory build/conformance && \
	    $(RUN) build/conformance '$(ONNX)'; \
	    else echo "conformance: SKIPPED, there is no folder $(ONNX); set ONNX"; fi

count: ## count instructions per call: none may grow by 2 % (ARGS=--update writes the table)
small: ## test builds without parts of attn.h, and microcontrollers in qemu
size: ## print bytes of code and compile time per backend and option
python: ## test examples/python with NumPy (PYTHON=)
spec: ## test the second implementation, written from tests/SPEC.md in Python, against attn.h (NumPy; PYTHON=)

turns: ## compare the speed of this attn.h with another one (OLD=commit or file; ARGS='--cold S6')
	@sh tests/bench/turns.sh $(OLD)
	@build/bench/turns $(ARGS)

bench: ## compare the speed with the libraries installed here (ARGS='--quick', '--cold --half')
bench: build/bench/bench
	@build/bench/bench $(ARGS)
	@build/bench/plot build/bench.csv build/libraries.svg build/bench.svg build/bench.md

sweep: ## compare 1,000 random calls with a plain loop, hot and cold (ARGS=-f: features; -h)
sweep: build/bench/bench
	@build/bench/sweep $(ARGS)

##@ Maintain. Slower checks, run before a release; .ci/run runs all of them in their quick forms.
cross: ## compare the hashes on every architecture and compiler that can run here
sanitize: ## run the tests under every sanitizer and valgrind (ARGS='msan tsan')
coverage: ## list lines and branches that no test takes; tests/checks/coverage.txt has the exceptions
analyze: ## run gcc -fanalyzer, clang-tidy and cppcheck
fuzz: ## fuzz arguments, caches, layers and masks, TIME seconds each (default 60)
mutate: ## break attn.h on purpose, one place at a time: the tests must notice

prove: ## run the proofs of Frama-C and Gappa, and mistakes they must notice (ARGS=all)
	@sh tests/checks/prove.sh $(ARGS)

soak: ## run random calls from many threads for 10 minutes (ARGS=60: minutes)
soak: build/soak
	@$(RUN) build/soak $(if $(QUICK),-q) $(ARGS)

new-isa: ## add a made-up instruction set to a copy of attn.h by the steps of section 11, and test it
	@sh tests/checks/new_isa.sh

models: ## run trained models with published results (MODELS=folder, default ../shared/models)

translate-test: ## test the translator: sentences, BLEU, bits, damaged files, pictures
	@sh tests/checks/translate.sh $(ARGS)

listen-test: ## test the speech recogniser: CTranslate2's tokens and word times, bits, damaged files (SPEECH=folder)
	@sh tests/checks/listen.sh $(ARGS)

page-test: ## build the page and test it in a headless Chromium against the C library (CHROMIUM=program)
	@sh tests/checks/page.sh

library-test: ## install the library and use it: pkg-config, CMake, Meson, another version's header
	@sh tests/checks/library.sh

mpi: ## run one sequence over 1 to 4 MPI ranks: the bits must be the same (Open MPI or MPICH)

bench-peers: ## install the libraries to compare with (apt-get as root, pip), then make bench
	@sh tests/bench/peers.sh
	@rm -f build/bench/bench && $(MAKE) --no-print-directory bench

llama-bench: ## compare the speed of a Llama step with llama.cpp, compiled from its source (pip, cmake)
	@sh tests/bench/llama.sh

embed-bench: ## compare the speed of that search with ONNX Runtime (PYTHON with numpy onnx onnxruntime)
	@sh examples/embed/search.sh embed-bench

listen-bench: ## compare the speed of the speech recogniser with CTranslate2 (SPEECH=folder, PYTHON with ctranslate2)
	@sh examples/listen/bench.sh

page-release: ## build the page and put it into examples/web
	@sh examples/web/build.sh examples/web/index.html

clean: ## remove build/ and the output of an example's cc line
	rm -rf build a.out a.exe

# targets that are a script of the same name
strict examples mpi python readme models golden mutate sanitize analyze count small size coverage cross fuzz spec:
	@sh tests/checks/$@.sh $(ARGS)

build/translate build/listen build/embed build/embed-bench: examples/svg.h attn.h build/flags \
    $(wildcard examples/*/*.[ch])
	@echo 'compiling $@ and attn.h: 10 to 20 seconds'
	@$(CC) $(CFLAGS) -I. -DATTN_THREADS examples/$(if $(findstring -,$@),embed/bench,$(@F)/$(@F)).c -o $@ -pthread

build/$(SO): attn.h build/flags
	@echo 'compiling the library: 10 to 20 seconds'
	@printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > build/attn.c
	@$(CC) $(CFLAGS) -fPIC -DATTN_THREADS -I. -c build/attn.c -o build/attn.o
	@rm -f build/libattn.a && $(AR) -rcs build/libattn.a build/attn.o
	@$(CC) $(CFLAGS) $(SHARED) build/attn.o -o $@ -pthread
	@ln -sf $(SO) build/$(SONAME) && ln -sf $(SONAME) build/$(SOLINK)

build/spec/vectors: tests/spec/vectors.c tests/spec/forms.h build/$(SO)
	@$(CC) $(CFLAGS) $(WARN) -I. tests/spec/vectors.c build/libattn.a -o $@ -pthread
build/test: $(OBJECTS)
	@$(CC) $(CFLAGS) $(OBJECTS) -o $@ -lm -pthread
build/obj/%.o: %.c attn.h $(HEADERS) build/flags
	@$(CC) $(FLAGS) $(QUICKLY) -c $< -o $@
# It compiles an implementation with hooks. With default flags, or QUICK=1, -O1 saves time.
build/obj/private.o: $(wildcard tests/suites/private/*.h)
build/obj/private.o: QUICKLY = $(if $(QUICK),-O1,$(if $(CFLAGS:-O2=),,-O1))

build/conformance: $(wildcard tests/onnx/*) build/obj/harness.o build/obj/attn_impl.o
	@$(CC) $(FLAGS) $(wildcard tests/onnx/*.c) build/obj/harness.o build/obj/attn_impl.o -o $@ -lm -pthread
build/soak: tests/soak/soak.c tests/support/harness.c tests/support/cases.c attn.h $(HEADERS) build/flags
	@$(CC) $(FLAGS) $(if $(QUICK),-O1) tests/soak/soak.c tests/support/harness.c tests/support/cases.c -o $@ -lm -pthread
build/bench/bench: $(wildcard tests/bench/*) tests/support/attn_impl.c attn.h build/flags
	@sh tests/bench/build.sh

# another compiler or other flags: rebuild
build/flags: FORCE
	@mkdir -p build/obj build/spec; echo '$(CC) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS)' > $@

FORCE:
.PHONY: FORCE $(shell sed -n 's/^\([a-z][a-z-]*\):.*## .*/\1/p' Makefile)
