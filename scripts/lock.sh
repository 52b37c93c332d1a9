#!/bin/sh
# Resolve the dependencies of pyproject.toml into the hashed lock files, for every platform and Python we support.
# The files name neither an index nor a path of the machine that made them. LOCK_ARGS=--upgrade takes newer versions.
set -eu
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
export UV_CUSTOM_COMPILE_COMMAND="make lock"
uv=.tools/bin/uv

compile() {
    # shellcheck disable=SC2086  # several arguments on purpose
    "$uv" pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
        --python-version 3.11 ${LOCK_ARGS:-} "$@"
}

compile --group dev --extra testing --output-file requirements.lock pyproject.toml
echo 'uv>=0.9' | compile --output-file requirements-uv.lock -

if grep -nE '://|^--|(^|[^[:alnum:]_.])/' requirements.lock requirements-uv.lock; then
    echo "lock: a lock file names an address, an option or a path (above); it must not." >&2
    exit 1
fi
