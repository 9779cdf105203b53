#!/usr/bin/env bash
# apt_mirrors.sh: prints the Debian mirrors of this machine's apt sources, best first; QOLA_DEBIAN_MIRROR overrides
# them. rules/private/repositories/debian_packages.bzl runs it where the user named no mirror.
set -euo pipefail
# shellcheck source=tools/setup/tree.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/tree.sh"
mirrors
