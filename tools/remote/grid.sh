#!/usr/bin/env bash
# Runs a BuildGrid in the foreground: grid.sh DIRECTORY. Storage and Python packages are kept in DIRECTORY.
#   QOLA_GRID_DATABASE  a PostgreSQL database, such as postgresql://USER:PASSWORD@HOST/NAME
#   QOLA_GRID_ADDRESS   where it listens (default: 0.0.0.0:50051)
#   QOLA_PYTHON         a Python of version 3.13 or later (default: python3)
set -euo pipefail
REPOSITORY=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)

die() {
  printf 'grid.sh: error: %s\ngrid.sh: to fix: %s\n' "$1" "$2" >&2
  exit 2
}

(($# == 1)) || die "no directory" "name one: tools/remote/grid.sh DIRECTORY"
[[ -n ${QOLA_GRID_DATABASE:-} ]] ||
  die "no database: QOLA_GRID_DATABASE is not set" "QOLA_GRID_DATABASE=postgresql://USER:PASSWORD@HOST/NAME $0 $1"
PYTHON=${QOLA_PYTHON:-python3}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 13))' ||
  die "$PYTHON is $("$PYTHON" --version 2>&1), BuildGrid needs 3.13" "name a later one in QOLA_PYTHON"

mkdir -p -- "$1"
DIRECTORY=$(cd -- "$1" && pwd -P)
REQUIREMENTS=$REPOSITORY/third_party/python/buildgrid.txt
PACKAGES=$DIRECTORY/packages
if ! cmp -s -- "$REQUIREMENTS" "$PACKAGES/requirements.txt"; then
  rm -rf -- "$PACKAGES"
  "$PYTHON" -m pip install --quiet --no-input --require-hashes --target "$PACKAGES" -r "$REQUIREMENTS"
  cp -- "$REQUIREMENTS" "$PACKAGES/requirements.txt"
fi

export PYTHONPATH=$PACKAGES QOLA_GRID_STORAGE=$DIRECTORY/storage QOLA_GRID_ADDRESS=${QOLA_GRID_ADDRESS:-0.0.0.0:50051}
"$PYTHON" "$PACKAGES/bin/bgd" migrate apply "$QOLA_GRID_DATABASE"
exec "$PYTHON" "$PACKAGES/bin/bgd" server start "$REPOSITORY/tools/remote/buildgrid.yml"
