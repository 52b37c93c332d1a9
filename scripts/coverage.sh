#!/bin/sh
# Runs the own tests of core and domain, and fails where a branch of these two rooms is reached by none of them.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
COVERAGE_FILE="$folder/coverage"
export COVERAGE_FILE
.venv/bin/pytest -q -n 2 --cov=ephemerd.core --cov=ephemerd.domain --cov-branch --cov-fail-under=100 \
    --cov-report=term-missing:skip-covered tests/unit/core tests/unit/domain
