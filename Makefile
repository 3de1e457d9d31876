# A thin front to CMake.  `make help` lists what there is.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: all build cuda help setup test test-full test-gpu test-python coverage demo bench bench-peers \
        format docs install clean

all build: $(BUILD)/build.ninja ## build the library and the command in build/
	cmake --build $(BUILD) -j $(JOBS)

help: ## this list
	@sed -n 's/^\([a-z-]\+\).*:.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

$(BUILD)/build.ninja: | setup
	cmake -S . -B $(BUILD) -G Ninja

setup: ## install what is missing (Debian)
	@tools/setup

test: setup ## install what is missing, build, run the tests
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/check

test-full: ## all at full length, fuzzing, threads, valgrind, coverage, aarch64
	@tools/setup full
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/check full

cuda: setup ## build the kernels for CUDA devices too (needs nvcc)
	cmake -S . -B $(BUILD) -G Ninja -DFOCI_CUDA=ON
	cmake --build $(BUILD) -j $(JOBS)

test-gpu: cuda ## the properties of all mechanisms on a CUDA device
	@BUILD=$(BUILD) tools/gpu

test-python: build ## the Python package with PyTorch and transformers, which are installed
	@BUILD=$(BUILD) tools/test-python

coverage: setup ## run the tests and print the lines and branches they reach
	@tools/coverage make $(BUILD)-coverage $(JOBS)

demo: build ## build, and compare nine mechanisms on a novel: a table and a page
	@BUILD=$(BUILD) tools/demo

bench: build ## our numbers on this machine
	$(BUILD)/foci bench

bench-peers: build ## side by side with PyTorch, in a virtual environment
	@BUILD=$(BUILD) tools/peers

format: ## lay out all sources
	tools/sources | xargs clang-format -i

docs: build ## the API manual, the pictures of docs/mechanisms and tasks, the C of the READMEs
	@mkdir -p $(BUILD)/docs
	python3 tools/manual.py html >$(BUILD)/docs/foci.html
	tools/python tools/pictures.py $(BUILD)/foci docs/mechanisms
	python3 tools/tasks.py $(BUILD)/foci docs/tasks
	tools/readme

install: build ## the libraries, headers, command, man pages, into PREFIX
	cmake --install $(BUILD) --prefix "$(PREFIX)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then \
	    PATH="$$PATH:/sbin:/usr/sbin" ldconfig || :; fi # programs find it from now on

clean: ## remove what was built
	rm -rf $(BUILD) $(BUILD)-sanitize $(BUILD)-thread $(BUILD)-valgrind \
	    $(BUILD)-coverage $(BUILD)-aarch64
