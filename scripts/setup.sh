#!/bin/sh
# Make .venv with everything the project needs to run and to be tested. Safe to repeat; quick when nothing changed.
#
# Needs a Python >= 3.11 with pip (or with its venv module) and access to a package index; no root, and nothing is
# written outside this folder but the tools' own caches. PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
tools=.tools
stamp=$venv/.setup-stamp # two lines: what the environment was made from, and with which interpreter

fail() {
    printf 'setup: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON: there is no such program." \
            "Give the path of a Python 3.11 or newer: make setup PYTHON=/path/to/python3"
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is older than Python 3.11." \
            "Give a newer one: make setup PYTHON=/path/to/python3"
        command -v "$PYTHON"
        return
    fi
    kept=$(sed -n 2p "$stamp" 2>/dev/null || true)
    if [ -n "$kept" ] && new_enough "$kept"; then
        printf '%s\n' "$kept"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "found no Python 3.11 or newer on PATH." \
        "Install one (Debian 12: apt-get install python3 python3-venv python3-pip), or name it: make setup PYTHON=/path/to/python3"
}

# What the environment was made from. A moved checkout, another interpreter or a changed lock makes a new one.
fingerprint() {
    "$1" - "$PWD" pyproject.toml requirements.lock requirements-uv.lock scripts/setup.sh <<'PY'
import hashlib, pathlib, sys
digest = hashlib.sha256("\0".join([sys.argv[1], sys.base_prefix, sys.version]).encode())
for name in sys.argv[2:]:
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())
PY
}

# pip's own settings (index, certificate) hold for uv too, which does not read them.
adopt_pip_settings() {
    index=${PIP_INDEX_URL:-$("$1" -m pip config get global.index-url 2>/dev/null || true)}
    if [ -n "$index" ] && [ -z "${UV_DEFAULT_INDEX:-}" ]; then
        UV_DEFAULT_INDEX=$index
        export UV_DEFAULT_INDEX
    fi
    certificate=${PIP_CERT:-$("$1" -m pip config get global.cert 2>/dev/null || true)}
    if [ -n "$certificate" ] && [ -z "${SSL_CERT_FILE:-}" ]; then
        SSL_CERT_FILE=$certificate
        export SSL_CERT_FILE
    fi
}

# uv comes from pip into the project's own folder, at the version and with the hashes of requirements-uv.lock.
install_uv() {
    rm -rf "$tools"
    if "$1" -m pip --version >/dev/null 2>&1; then
        "$1" -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action ignore \
            --require-hashes --no-deps --only-binary :all: --target "$tools" -r requirements-uv.lock ||
            fail "pip could not install uv." "Is the package index reachable? Try: $1 -m pip download --no-deps uv"
    elif "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        "$1" -m venv "$tools" || fail "could not make a virtual environment with $1."
        "$tools/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes --no-deps --only-binary :all: -r requirements-uv.lock ||
            fail "pip could not install uv." "Is the package index reachable?"
    else
        fail "$1 has neither pip nor the ensurepip module that 'python3 -m venv' needs." \
            "On Debian and Ubuntu: apt-get install python3-pip python3-venv" \
            "Or name another interpreter: make setup PYTHON=/path/to/python3"
    fi
    [ -x "$tools/bin/uv" ] || fail "pip installed uv, but $tools/bin/uv is not there."
    cp requirements-uv.lock "$tools/installed"
}

# Two at a time would undo each other: go on as the same process, with a lock that ends when it ends.
take_turns() {
    SETUP_HAS_LOCK=1 exec "$1" -c 'import fcntl, os, sys
lock = os.open(".setup.lock", os.O_CREAT | os.O_RDWR, 0o644)
fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock, True)
os.execv("/bin/sh", ["sh", *sys.argv[1:]])' scripts/setup.sh
}

python=$(find_python)
want=$(fingerprint "$python")
if [ -x "$venv/bin/ephemerd" ] && [ "$(sed -n 1p "$stamp" 2>/dev/null || true)" = "$want" ]; then
    exit 0
fi
[ -n "${SETUP_HAS_LOCK:-}" ] || take_turns "$python"
unset SETUP_HAS_LOCK
rm -f "$stamp"

export UV_PYTHON_DOWNLOADS=never
export UV_NO_PROGRESS=1
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME CONDA_PREFIX 2>/dev/null || true
if [ -z "${UV_CACHE_DIR:-}" ] && { [ -z "${HOME:-}" ] || [ ! -w "${HOME:-/}" ]; }; then
    export UV_CACHE_DIR="$PWD/$tools-cache"
fi
adopt_pip_settings "$python"

echo "setup: using $("$python" --version) at $python" >&2
if ! cmp -s requirements-uv.lock "$tools/installed" || ! "$tools/bin/uv" --version >/dev/null 2>&1; then
    install_uv "$python"
fi
uv=$tools/bin/uv

# A kept environment must belong to this interpreter and this folder; otherwise it is made anew.
same='import os, sys; sys.exit([sys.base_prefix, sys.version, os.path.dirname(os.path.realpath(os.path.dirname(sys.executable)))] != sys.argv[1:])'
base=$("$python" -c 'import sys; print(sys.base_prefix)')
version=$("$python" -c 'import sys; print(sys.version)')
if ! "$venv/bin/python" -c "$same" "$base" "$version" "$PWD/$venv" 2>/dev/null ||
    ! grep -qsF "$PWD/$venv/" "$venv/bin/ruff" "$venv/bin/pytest"; then
    "$uv" venv --quiet --clear --python "$python" "$venv"
fi
"$uv" pip sync --quiet --python "$venv/bin/python" --require-hashes requirements.lock
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
[ -x "$venv/bin/ephemerd" ] || fail "the install left no $venv/bin/ephemerd."
printf '%s\n' "$want" "$python" >"$stamp"
echo "setup: done, $venv/bin/ephemerd" >&2
