#!/bin/sh
# Links relocatable device code, and embeds the result as host code of -fgpu-rdc refers to it.
# device_link.sh LLVM_NM IMAGE ASSEMBLY OUTPUT OBJECT... -- COMPILER ARGUMENT...
# Uses nothing but the shell: a worker has no more (docs/guide/remote-execution.md).
set -e
nm=$1 image=$2 assembly=$3 output=$4
shift 4
objects=
while [ "$1" != -- ]; do
  # Paths that Bazel makes of names of targets and sources: without blanks.
  objects="$objects $1"
  shift
done
shift
# shellcheck disable=SC2086
"$@" -Wno-unused-command-line-argument --hip-link --offload-device-only $objects -o "$image"
# shellcheck disable=SC2086
symbols=$("$nm" --undefined-only --format=just-symbols $objects)
# Objects of one image share the handle: HIP loads the image once.
{
  printf '.section .hip_gpubin_handle, "aw", @progbits\n.p2align 3\n.Lhandle: .zero 8\n'
  printf '.section .hip_fatbin, "a", @progbits\n.p2align 12\n.Limage: .incbin "%s"\n' "$image"
  printf '.section .note.GNU-stack, "", @progbits\n'
  seen=
  for symbol in $symbols; do
    case $symbol in
    __hip_gpubin_handle*) place=.Lhandle ;;
    __hip_fatbin*) place=.Limage ;;
    *) continue ;;
    esac
    case " $seen " in *" $symbol "*) continue ;; esac
    seen="$seen $symbol"
    printf '.globl %s\n.hidden %s\n.set %s, %s\n' "$symbol" "$symbol" "$symbol" "$place"
  done
} >"$assembly"
"$1" -no-canonical-prefixes -x assembler -c "$assembly" -o "$output"
