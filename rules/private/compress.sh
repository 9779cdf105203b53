#!/bin/sh
# Compresses code objects as clang compresses those of a source's kernels, which HIP's runtime reads.
# compress.sh BUNDLER (ARCH CODE_OBJECT OUTPUT)...
# Uses nothing but the shell: a worker has no more (docs/guide/remote-execution.md).
bundler=$1
shift
while [ $# -gt 0 ]; do
  "$bundler" -type=o -targets="host-x86_64-unknown-linux-gnu-,hipv4-amdgcn-amd-amdhsa--$1" \
    -input=/dev/null -input="$2" -output="$3" -compress -compression-level=19 || exit
  shift 3
done
