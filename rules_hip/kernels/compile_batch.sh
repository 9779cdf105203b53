#!/bin/sh
# Compiles a batch of kernel instances; where that fails, says which of them does not compile.
# compile_batch.sh BATCH KERNEL... -- COMPILER ARGUMENT...: the compiler's command lacks the source.
# Uses nothing but the shell: a worker has no more (docs/guide/remote-execution.md).
batch=$1
shift
kernels=
count=0
while [ "$1" != -- ]; do
  # Paths that Bazel makes of names of kernel instances: without blanks.
  kernels="$kernels $1"
  count=$((count + 1))
  shift
done
shift
"$@" "$batch" && exit 0
code=$?

# breaks KERNEL COMMAND...: whether the command fails, for a reason that is in the source.
breaks() {
  source=$1
  shift
  said=$("$@" "$source" 2>&1) && return 1
  case $said in
  *"unable to execute command"* | *"No space left"*) return 1 ;;
  esac
}

# say KERNEL
say() {
  name=${1##*/}
  echo "qola: kernel instance ${name%.cpp} does not compile" >&2
  broken=1
}

# A compiler that was killed says nothing of its source.
[ "$code" -le 125 ] || exit "$code"
echo "qola: a batch of $count kernel instances does not compile; trying each alone" >&2
broken=
for kernel in $kernels; do
  if breaks "$kernel" "$@" -fsyntax-only; then say "$kernel"; fi
done
# What the compiler parses may still end it later, after a whole compile.
for kernel in $kernels; do
  [ -z "$broken" ] || break
  if breaks "$kernel" "$@"; then say "$kernel"; fi
done
[ -n "$broken" ] ||
  echo "qola: each of them compiles alone: [build] batch = 1 in the manifest compiles them so" >&2
exit "$code"
