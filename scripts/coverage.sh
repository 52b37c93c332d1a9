#!/bin/sh
# Runs the own tests of core and domain, and fails where a branch of these two rooms is reached by none of them.
# Tests that draw their examples do not count, and run with the others.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
COVERAGE_FILE="$folder/coverage"
export COVERAGE_FILE
.venv/bin/pytest -q -n 2 --cov --cov-branch --cov-report= -m measured tests/unit/core tests/unit/domain
.venv/bin/coverage report --skip-covered --show-missing --fail-under=100 \
    --include='src/ephemerd/core/*,src/ephemerd/domain/*'
