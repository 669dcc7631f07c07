# SPDX-License-Identifier: PostgreSQL
#
# make, make install      build and install for the server that PG_CONFIG names
# make demo, make check   all their own set-up, a throw-away cluster, nothing installed
# make dev, test, ack     a private server that stays, one test against it (tools/dev)
# make torture            a storm of faults: MINUTES=10 SEED=7 (1 minute, a new seed)
# make fuzz               MINUTES=60 of the fuzz targets (test/fuzz), together
# make mutants            breaks each guard (ONLY="name ..."), and wants its claim to fail (tools/check_mutants)
# make lint               three static analysers on src/, types of clients/ (tools/check_lint)
# make check-memory       TESTS under valgrind's memcheck, or SANITIZER=address (tools/check_memory)
# make coverage           lines of src/ and sql/ that no test reaches (tools/check_coverage)
# make check-rows         does the code the same as before? BASE=revision (tools/check_rows)
# make check-long, check-all, bench, format, clean
# make installcheck       against the running server in which sas is installed and
#                         preloaded; FULL=1: all regress tests (docs/operating/packages.md)
# make check-citus        CITUS=folder of an installed or built Citus: a cluster
# make dist               sas-VERSION.tar.gz and .zip of what is committed
# make check-packages     packages for each Debian built, installed, upgraded, purged;
#                         the RPM spec

EXTENSION  = sas
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" sas.control)

MODULE_big = sas
OBJS       = $(sort $(patsubst %.c,%.o,$(wildcard src/*.c src/*/*.c)))

# The pieces of the install script; sql/order is their table of contents.
PIECES     = $(addprefix sql/,$(shell sed '/^\#/d' sql/order))
DATA_built = sas--$(EXTVERSION).sql
DATA       = $(wildcard sql/upgrade/sas--*--*.sql)

# The server's own headers and macros need the four exceptions.  -MMD writes
# the headers of each object beside it, so that a changed header rebuilds.
PG_CPPFLAGS = -I$(srcdir)/src
PG_CFLAGS   = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-error=clobbered -MMD -MP -ffile-prefix-map=$(CURDIR)=.
SHLIB_LINK  = -lcurl -lwslay
EXTRA_CLEAN = $(wildcard src/*.[do] src/*/*.[do]) sas--*.sql

# A server on which workers run does one test; "setup" and those that tick by
# hand need one without (test/regress.conf says what FULL=1 needs).
REGRESS      = $(if $(FULL),,installed)
REGRESS_OPTS = --inputdir=$(srcdir)/test --dbname=sas_installcheck \
	$(if $(FULL),--schedule=$(srcdir)/test/schedule)

# Bitcode would need exactly the clang that the server was built with.
override with_llvm = no

PG_CONFIG ?= pg_config
export PG_CONFIG

# These bring along what they need, the server's headers included, so they
# must run where PGXS is not there yet.
TASKS = check check-long check-all check-citus check-memory check-packages check-rows coverage lint dist torture fuzz mutants dev dev-stop test ack \
	demo bench format setup screenshots

ifneq ($(filter $(TASKS),$(MAKECMDGOALS)),)

.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)
check:
	@tools/setup build check
	@tools/check
check-all:
	@tools/setup build check
	@tools/check_all
check-long:
	@tools/setup build check demo lint
	@SAS_LONG=1 tools/check
	@tools/stage tools/demo
	@tools/check_rows
	@tools/check_packages
check-citus:
	@[ -n "$(CITUS)" ] || echo "check-citus: skipped, CITUS=folder names no installed or built Citus"
	@[ -z "$(CITUS)" ] || tools/setup build check
	@[ -z "$(CITUS)" ] || LAYERS=tap TESTS="540_citus 541_citus_chaos 542_citus_once" CITUS="$(CITUS)" tools/check
check-packages:
	@tools/check_packages
check-rows:
	@tools/setup build demo
	@tools/check_rows $(BASE)
check-memory:
	@tools/setup build check memory
	@tools/check_memory
coverage:
	@tools/setup build check
	@tools/check_coverage
lint:
	@tools/setup build lint
	@tools/check_lint
dist:
	@tools/dist
torture:
	@tools/setup build check
	@LAYERS=tap TESTS=444_torture tools/check
# The browser's test makes the pictures of the docs: as user postgres, so by way of a directory of its own.
screenshots:
	@tools/setup build check
	@d=$$(mktemp -d) && chmod 777 $$d && LAYERS=tap TESTS=447_console_browser SCREENSHOTS=$$d tools/check && \
		mkdir -p docs/images && cp $$d/*.png docs/images/ && rm -r $$d
fuzz:
	@tools/setup build check
	@MINUTES=$(or $(MINUTES),10) FOUND=$${FOUND:-test/fuzz/found} tools/check_fuzz
mutants:
	@tools/setup build check
	@tools/check_mutants run
dev:
	@tools/setup build demo
	@tools/dev start
dev-stop:
	@tools/dev stop
test:
	@tools/setup build demo
	@tools/dev test
ack:
	@tools/dev ack
demo:
	@tools/setup build demo
	@tools/stage tools/demo
bench:
	@tools/setup build demo bench
	@tools/stage bench/run
format:
	clang-format -i $(wildcard src/*.[ch] src/*/*.[ch])
setup:
	@tools/setup build demo check bench
$(filter-out $(TASKS),$(MAKECMDGOALS)):
	@$(MAKE) $@

else

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
# some packages bring PGXS without the headers
ifeq ($(and $(wildcard $(PGXS)),$(wildcard $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h)),)
$(error "$(PG_CONFIG)" finds no server headers: "make setup" as root installs them)
endif
include $(PGXS)

$(OBJS): Makefile
-include $(wildcard $(OBJS:.o=.d))

sas--$(EXTVERSION).sql: $(PIECES) sql/order Makefile
	cat $(PIECES) > $@

endif
