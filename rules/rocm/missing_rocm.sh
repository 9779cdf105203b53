#!/bin/sh
# Stands where the compiler would be when no ROCm was found at fetch time, so
# that only an action which really needs a compiler fails, and says why.
cat >&2 <<'EOF'
qola: ToolchainError: no ROCm compiler on this machine
  place:    @qola_rocm, looked in $ROCM_PATH where it is set, else in /opt/rocm and /usr
  found:    no runnable bin/hipcc
  expected: ROCm 6.2 or newer with hipcc, clang and the HIP headers
  fix:      ./bazelw ... (sets up a private ROCm), or install ROCm and run
            ROCM_PATH=/opt/rocm bazel fetch --force --repo=@qola_rocm
EOF
exit 1
