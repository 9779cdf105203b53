#!/usr/bin/env bash
# Measures the figures of docs/figures.md and prints them as its table. Wants an idle machine: 20 minutes on two cores.
#   bench/figures.sh [all|setup|build|plan]
set -euo pipefail
cd "$(dirname "$0")/.."

WORK=$(mktemp -d)
trap 'chmod -R u+w "$WORK"; rm -rf "$WORK"' EXIT
WHAT=${1:-all}

# seconds COMMAND...: its wall time; its output goes to a log that is shown when it fails.
seconds() {
  local start end
  start=$(date +%s.%N)
  "$@" >"$WORK/log" 2>&1 || { tail -40 "$WORK/log" >&2; exit 1; }
  end=$(date +%s.%N)
  awk "BEGIN { printf \"%.1f\", $end - $start }"
}
ratio() { awk "BEGIN { printf \"%.3f\", $1 / $2 }"; }
row() { printf '| %s | %s | %s |\n' "$@"; }

measure_setup() {
  row "Set-up of the private tree" "$(QOLA_CACHE_HOME=$WORK/cache QOLA_BAZEL=tree seconds ./bazelw --setup-only) s" ""
  chmod -R u+w "$WORK/cache" && rm -rf "$WORK/cache"
}

# The commands of the build's own compile actions, run by xargs on as many cores: what ninja would do.
plain_compiles() {
  mkdir -p "$WORK/out"
  ./bazelw aquery --output=jsonproto 'mnemonic("CppCompile", deps(//:quickstart_libmha_fwd))' 2>/dev/null >"$WORK/aquery.json"
  ./bazelw --in-tree python3 - "$WORK" <<'EOF'
import json, pathlib, shlex, sys
work = pathlib.Path(sys.argv[1])
actions = json.loads((work / "aquery.json").read_text())["actions"]
with (work / "commands").open("w") as out:
    for number, action in enumerate(actions):
        argv = action["arguments"]
        for flag, name in (("-o", "o"), ("-MF", "d")):
            argv[argv.index(flag) + 1] = str(work / "out" / f"{number}.{name}")
        print(shlex.join(argv), file=out)
EOF
  local root
  root=$(./bazelw info execution_root 2>/dev/null)
  ./bazelw --in-tree bash -c "cd '$root' && HIP_PLATFORM=amd xargs -a '$WORK/commands' -d '\n' -P '$(nproc)' -I{} sh -c '{}'"
}

measure_build() {
  local cold plain cached noop
  ./bazelw build //:quickstart_libmha_fwd >/dev/null 2>&1 # all fetched, so that the network is not measured
  plain=$(seconds plain_compiles)
  cold=$(seconds ./bazelw --output_base="$WORK/cold" build --disk_cache="$WORK/disk" //:quickstart_libmha_fwd)
  ./bazelw --output_base="$WORK/cold" shutdown 2>/dev/null
  cached=$(seconds ./bazelw --output_base="$WORK/cached" build --disk_cache="$WORK/disk" //:quickstart_libmha_fwd)
  noop=$(seconds ./bazelw --output_base="$WORK/cached" build --disk_cache="$WORK/disk" //:quickstart_libmha_fwd)
  ./bazelw --output_base="$WORK/cached" shutdown 2>/dev/null
  row "Quickstart, cold: fetch, plan, compile, link" "$cold s" "$(ratio "$cold" "$plain") of the same compile commands run by xargs ($plain s)"
  row "Quickstart in a new output base, from the disk cache" "$cached s" "$(ratio "$cached" "$cold") of cold"
  row "Quickstart again, nothing changed" "$noop s" "$(ratio "$noop" "$cold") of cold"
}

measure_plan() {
  local tree te everything generators ck
  tree=$(./bazelw info output_base 2>/dev/null)/external/$(./bazelw mod dump_repo_mapping '' 2>/dev/null | grep -o '"aiter":"[^"]*' | cut -d'"' -f4)
  ck=$tree/aiter_meta/3rdparty/composable_kernel/example/ck_tile/01_fmha
  cat >"$WORK/everything.toml" <<'EOF'
[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 600
[[modules]]
name = "libmha_bwd"
receipt = 600
EOF
  plan() { ./bazelw --in-tree python3 -B -m qola plan --manifest "$1" --aiter "$tree" --json; }
  generate() {
    for direction in fwd fwd_splitkv batch_prefill bwd; do
      ./bazelw --in-tree python3 -B "$ck/generate.py" -d "$direction" --receipt 600 --output_dir "$WORK/generated"
    done
  }
  te=$(seconds plan manifests/te.toml)
  generators=$(seconds generate)
  everything=$(seconds plan "$WORK/everything.toml")
  row "Plan of manifests/te.toml (540 forward, 5,568 backward kernels)" "$te s" "$(ratio "$te" "$generators") of CK's generate.py, receipt 600"
  row "Plan of receipt 600 with everything, two archs (21,844 kernels)" "$everything s" "$(ratio "$everything" "$generators") of CK's generate.py, receipt 600 ($generators s)"
}

printf '| What | Time | Against |\n| --- | --- | --- |\n'
for part in setup build plan; do
  [[ $WHAT != all && $WHAT != "$part" ]] || "measure_$part"
done
