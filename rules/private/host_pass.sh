#!/bin/sh
# The host pass of a HIP compile: bundles code objects, then compiles the source with the bundle embedded.
# host_pass.sh BUNDLER OBJECT BUNDLER_ARGUMENT... -- COMPILER ARGUMENT...
set -eu
bundler=$1 object=$2
shift 2
arguments=
while [ "$1" != -- ]; do
  arguments="$arguments $1"
  shift
done
shift
bundle=$object.hipfb
# The first target's input is empty: it is the host's, which is the object around the bundle.
# shellcheck disable=SC2086 # options and paths of Bazel's, without blanks
"$bundler" -type=o -bundle-align=4096 -input=/dev/null $arguments "-output=$bundle"
"$@" -Xclang -fcuda-include-gpubinary -Xclang "$bundle" -o "$object"
# Not removed: a remote worker may have no program but sh.
: >"$bundle"
