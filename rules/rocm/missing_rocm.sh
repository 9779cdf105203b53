#!/bin/sh
# Stands where the compiler would be when no ROCm was found at fetch time, so
# that only an action which really needs a compiler fails, and says why.
cat >&2 <<'EOF'
qola: ToolchainError: no ROCm compiler on this machine
  place:    the place QOLA_ROCM names; for QOLA_ROCM=local $ROCM_PATH, or without it /opt/rocm and /usr
  found:    no runnable bin/hipcc
  expected: ROCm 6.2 or newer with hipcc, clang and the HIP headers
  fix:      build with the ROCm that qola pins: --repo_env=QOLA_ROCM=pinned
            or install ROCm: --repo_env=QOLA_ROCM=/opt/rocm
EOF
exit 1
