# shellcheck shell=bash
# bazelw's --doctor, --uninstall and --refresh-lock. Sourced by bazelw.
set -euo pipefail

# shellcheck source=tools/setup/tree.sh
source "$SETUP/tree.sh"
# shellcheck source=tools/setup/resolve.sh
source "$SETUP/resolve.sh"

# doctor: prints what is found and what is missing; returns 0 if Bazel can run.
doctor() {
  local line problem=
  printf 'pinned      Bazel %s; Debian packages: %s (tree %s)\n' "$VERSION" \
    "$([[ -f $LOCK ]] && lock_entries | wc -l || echo "none, run ./bazelw --refresh-lock")" "$DIGEST"
  say "trying every way; this may take a minute"
  pin_download
  choose
  [[ -n ${QOLA_BAZEL:-} ]] || { name_answer && remember; }
  for line in "${REPORT[@]}"; do
    printf 'found       %s\n' "$line"
  done
  if [[ -d $TREE ]]; then
    doctor_tree || problem="the tree does not run: ./bazelw --uninstall, then ./bazelw --setup-only"
  else
    doctor_no_tree || problem="see above"
  fi
  local -a trees=("$TREES"/*/)
  local number="${#trees[@]} trees"
  ((${#trees[@]} != 1)) || number="1 tree"
  ((${#trees[@]} == 0)) ||
    printf 'disk        %s under %s (%s)\n' "$(du -sh -- "$TREES" | cut -f1)" "$TREES" "$number"
  if [[ $WAY == tree ]]; then
    if [[ -n $problem ]]; then
      printf 'answer      Bazel cannot run. To fix: %s\n' "$problem"
      return 1
    fi
    printf 'answer      the private tree\n'
    [[ -d $TREE ]] || printf '            the next call makes it, or ./bazelw --setup-only\n'
  else
    printf 'rocm        %s\n' "$(type -P hipcc || ls -d "${ROCM_PATH:-/opt/rocm}/bin/hipcc" 2>/dev/null ||
      echo "none on this machine; QOLA_BAZEL=tree brings its own")"
    printf 'answer      %s\n' "$BAZEL"
  fi
}

# Reports on the tree that is there.
doctor_tree() {
  local program ok=0
  printf 'tree        %s\n' "$TREE"
  for program in bazel hipcc python3; do
    printf 'tree        %-8s %s\n' "$program" \
      "$( (enter "$TREE" "$program" --version) 2>&1 | head -n 1)"
    (enter "$TREE" "$program" --version) >/dev/null 2>&1 || ok=1
  done
  return "$ok"
}

# Reports whether the tree can be made.
doctor_no_tree() {
  local problem need ok=0
  if problem=$(no_tree_because); then
    printf 'tree        cannot be made: %s\n' "$problem"
    return 1
  fi
  [[ -f $LOCK ]] || return 1
  need=$(($(lock_header download-megabytes) + $(lock_header unpacked-megabytes)))
  printf 'tree        not made yet: %s MB to download, %s MB of disk needed, %s MB free\n' \
    "$(lock_header download-megabytes)" "$need" "$(free_megabytes)"
  ((need <= $(free_megabytes))) || ok=1
  doctor_sources || ok=1
  return "$ok"
}

# Reports who may have the packages; succeeds if somebody answers.
doctor_sources() {
  local kind uri answer found=1
  local -a suites
  mapfile -t suites < <(lock_suites)
  printf 'packages    %s, as of %s\n' "${LOCK#"$WORKSPACE"/}" "$(lock_date)"
  while read -r kind uri; do
    answer='does not answer, or is not Debian'"'"'s archive'
    if is_debian "$uri" "${suites[@]}"; then
      answer=answers found=0
    fi
    printf 'packages    %s %s\n' "$(bare "$uri")" "$answer"
  done < <(sources)
  return "$found"
}

# uninstall: stops the Bazel servers that run from this cache's trees and removes what bazelw made.
uninstall() {
  local path pid
  for path in "$TREES"/*.lock; do
    (flock -n 8 || die "a set-up is running: ${path%.lock}" "wait for it, or end it") 8>>"$path"
  done
  for pid in $(tree_servers); do
    say "stopping the Bazel server $pid"
    kill "$pid" 2>/dev/null || continue
    for _ in {1..100}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  done
  for path in "$TREES" "$CACHE/unpacked" "$CACHE/offered" "$CACHE/bazelisk" "$CACHE/answers"; do
    [[ -d $path ]] || continue
    say "removing $path ($(du -sh -- "$path" | cut -f1))"
    chmod -R u+w -- "$path"
    rm -rf -- "$path"
  done
  rm -f -- "$CACHE/disk.bazelrc"
  rmdir -- "$CACHE" 2>/dev/null || true
  say "done; Bazel's own output stays in ${XDG_CACHE_HOME:-$HOME/.cache}/bazel, in $CACHE what else was put there"
}

# Prints the process ids of this user's Bazel servers that run from a tree of this cache.
tree_servers() {
  local file
  for file in /proc/[0-9]*/cmdline; do
    if [[ -O $file ]] && tr '\0' '\n' 2>/dev/null <"$file" | grep -q -F -e "-Dqola.tree=$TREES/" -- - &&
      tr '\0' '\n' 2>/dev/null <"$file" | grep -q -x -e '.*A-server\.jar.*'; then
      file=${file#/proc/}
      echo "${file%%/*}"
    fi
  done
}

# refresh-lock: resolves every packages.conf with apt and rewrites what depends on it.
refresh-lock() {
  local directory
  for directory in "${LOCKED[@]}"; do
    [[ ! -f $WORKSPACE/$directory/packages.conf ]] || (refresh "$directory")
  done
}
