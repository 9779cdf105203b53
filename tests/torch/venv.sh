#!/bin/bash
# venv.sh DIRECTORY: makes a virtual environment with the pinned PyTorch for the CPU; QOLA_TORCH is its bin/python.
#
# Needs python3.11, whose wheels are pinned. An environment with the same pins is kept.
set -euo pipefail

if (($# != 1)); then
  echo "usage: venv.sh DIRECTORY" >&2
  exit 2
fi
directory=$(realpath -m -- "$1")
cd "$(dirname "$0")/../../third_party/python"
readonly PINS=(torch.txt verify.txt dev.txt)

pins=$(sha256sum -- "${PINS[@]}")
if [[ -e $directory/pins && $(<"$directory/pins") == "$pins" ]]; then
  exit 0
fi
python3.11 -m venv --clear -- "$directory"
for file in "${PINS[@]}"; do
  "$directory/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$file"
done
printf '%s\n' "$pins" >"$directory/pins"
