#!/bin/sh
# Strips a library with OBJCOPY's ARGUMENTS, and hides the RUNPATH that only wheels need (qola_base/runpath.py): its entry of
# the dynamic section gets a tag that no loader reads.
# strip.sh OBJCOPY LIBRARY OUTPUT ARGUMENTS...
set -eu
objcopy=$1 library=$2 output=$3
shift 3

# A line of 16 bytes is an entry: a tag, and a value.
entries=$("$objcopy" --dump-section=.dynamic=/dev/stdout "$library" /dev/null | od -A n -v -t x1 |
  sed 's/^ 1d 00 00 00 00 00 00 00/ 4c 4f 51 60 00 00 00 00/; s/ / 0x/g')
[ "$entries" ]
# shellcheck disable=SC2059,SC2086 # Bytes, in octal digits.
printf "$(printf '\\%03o' $entries)" | "$objcopy" "$@" --update-section=.dynamic=/dev/stdin "$library" "$output"
