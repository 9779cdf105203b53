#!/usr/bin/env bash
# fetch_packages.sh LOCK: fetches what this machine's apt sources, or QOLA_DEBIAN_MIRROR, have of a lock's packages into
# the current directory, by apt, which knows its own proxies and credentials. What is missing or wrong is told, and is
# no failure: rules_hip/repositories/debian_packages.bzl, which runs it, asks others then.
set -euo pipefail
readonly LOCK=$1
say() { printf '%s\n' "$*" >&2; }
# shellcheck source=tools/setup/packages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/packages.sh"
fetch_packages || cat asked >&2
