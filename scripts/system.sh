#!/bin/sh
# Install the system packages that the tests need, as root on Debian and its kin. SYSTEM=0 refuses.
#
# Without root, elsewhere, or when refused it installs nothing and says what is missing; the tests that need it are
# then named as not run. Services that a package brings are kept from starting by themselves.
set -eu

# One "package:program" a line: the package is needed where the program is not on PATH.
needed() {
    cat <<'LIST'
docker.io:dockerd
containerd:containerd
runc:runc
podman:podman
nftables:nft
iproute2:ip
util-linux:nsenter
openssh-server:sshd
openssh-client:ssh
openssl:openssl
busybox-static:busybox
chromium:chromium
prometheus:prometheus
systemd:systemd-analyze
LIST
}

missing=$(needed | while IFS=: read -r package program; do
    command -v "$program" >/dev/null 2>&1 || printf '%s ' "$package"
done)
if [ -z "$missing" ]; then
    echo "system: no system package is missing." >&2
    exit 0
fi

if [ "${SYSTEM:-1}" = 0 ]; then
    echo "system: SYSTEM=0, so not installed: $missing" >&2
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "system: this is not Debian or one of its kin; install these by hand for the whole test suite: $missing" >&2
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "system: not root, so not installed. For the whole test suite: sudo apt-get install $missing" >&2
    exit 0
fi

# While this file says 101, no package starts a service. One that is there already is left as it is.
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
    trap 'rm -f "$guard"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod 755 "$guard"
fi

echo "system: installing $missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # several packages on purpose
apt-get install -y -qq --no-install-recommends $missing >&2

# Nor shall they start with the next boot: what was installed for tests alone is nobody's service.
if command -v systemctl >/dev/null 2>&1; then
    for package in $missing; do
        case $package in
        docker.io) units="docker.service docker.socket" ;;
        containerd) units=containerd.service ;;
        podman) units="podman.service podman.socket podman-restart.service podman-auto-update.timer" ;;
        openssh-server) units="ssh.service ssh.socket" ;;
        nftables) units=nftables.service ;;
        prometheus) units=prometheus.service ;;
        *) units= ;;
        esac
        for unit in $units; do
            systemctl disable --quiet "$unit" >/dev/null 2>&1 || true
        done
    done
fi
