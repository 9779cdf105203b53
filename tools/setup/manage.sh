# shellcheck shell=bash
# bazelw's --doctor, --uninstall and --refresh-lock. Sourced by bazelw.
set -euo pipefail

# shellcheck source=tools/setup/tree.sh
source "$SETUP/tree.sh"
# What is fetched from Debian's archive: the private tree, the hermetic ROCm, and servers for tests.
readonly -a PACKAGES_CONFS=(
  third_party/debian/packages.conf third_party/rocm/packages.conf tests/servers/packages.conf
)

# doctor: prints what is found and what is missing; returns 0 if Bazel can run.
doctor() {
  local line problem=
  printf 'pinned      Bazel %s; Debian packages: %s (tree %s)\n' "$VERSION" \
    "$([[ -f $LOCK ]] && lock_entries | wc -l || echo "none, run ./bazelw --refresh-lock")" "$DIGEST"
  say "trying every way; this may take a minute"
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
  ((${#trees[@]} == 0)) ||
    printf 'disk        %s under %s (%s trees)\n' "$(du -sh -- "$TREES" | cut -f1)" "$TREES" "${#trees[@]}"
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
  local problem scratch need ok=0
  if problem=$(no_tree_because); then
    printf 'tree        cannot be made: %s\n' "$problem"
    return 1
  fi
  [[ -f $LOCK ]] || return 1
  need=$(($(lock_header download-megabytes) + $(lock_header unpacked-megabytes)))
  printf 'tree        not made yet: %s MB to download, %s MB of disk needed, %s MB free\n' \
    "$(lock_header download-megabytes)" "$need" "$(free_megabytes)"
  ((need <= $(free_megabytes))) || ok=1
  scratch=$(mktemp -d)
  mapfile -t suites < <(lock_entries | cut -d' ' -f4 | sort -u)
  if (apt_update "$scratch/apt" "${suites[@]}" && check_offered "$scratch/apt") 2>"$scratch/messages"; then
    printf 'tree        the mirror offers every pinned version\n'
  else
    sed 's/^/tree        /' "$scratch/messages"
    ok=1
  fi
  rm -rf -- "$scratch"
  return "$ok"
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
  for path in "$TREES" "$CACHE/unpacked" "$CACHE/bazelisk" "$CACHE/answers"; do
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

# refresh-lock: resolves every packages.conf with apt and rewrites the packages.lock beside it.
refresh-lock() {
  local conf
  for conf in "${PACKAGES_CONFS[@]}"; do
    [[ ! -f $WORKSPACE/$conf ]] || (refresh_one "$conf")
  done
}

# refresh_one CONF: rewrites the lock of one packages.conf.
refresh_one() {
  local conf=$1 lock=$WORKSPACE/${1%.conf}.lock dir group
  dir=$(mktemp -d)
  # shellcheck disable=SC2064  # the value of now is meant
  trap "rm -rf -- '$dir'" EXIT
  while read -r group; do
    mkdir -p "$dir/$group/apt"
    resolve_group "$conf" "$group" "$dir/$group"
  done < <(groups "$conf")
  lock_text "$dir"/*/entries >"$dir/lock"
  if cmp -s "$dir/lock" "$lock"; then
    say "${lock#"$WORKSPACE"/} is up to date"
    return
  fi
  touch -- "$lock"
  diff <(grep -v '^#' "$lock" | cut -d' ' -f1,2) <(grep -v '^#' "$dir/lock" | cut -d' ' -f1,2) |
    sed -n 's/^[<>]/  &/p' >&2 || true
  cat "$dir/lock" >"$lock"
  say "wrote ${lock#"$WORKSPACE"/}: $(grep -c -v '^#' "$lock") packages"
}

# groups CONF: prints the names of its groups; without any, there is one.
groups() { awk '$1 == "group" { print $2; found = 1 } END { if (!found) print "all" }' "$WORKSPACE/$1"; }

# resolve_group CONF GROUP DIR: writes the group's lock entries, each after its unpacked size in KiB, to DIR/entries.
resolve_group() {
  local conf=$1 group=$2 dir=$3
  local -a suites=() packages=() alone=()
  read_packages_conf "$conf" "$group" "$dir/apt"
  apt_update "$dir/apt" "${suites[@]}"
  : >"$dir/plan"
  ((${#packages[@]} == 0)) || private_apt "$dir/apt" apt-get -s -qq install "${packages[@]}" >"$dir/plan" 2>"$dir/err" ||
    die "apt cannot resolve $conf:" "$(grep -v '^W:' "$dir/err")" \
      "$(tail -n 20 "$dir/plan")" "change the root packages in that file"
  {
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1=\2/p' "$dir/plan"
    ((${#alone[@]} == 0)) || private_apt "$dir/apt" apt-cache policy "${alone[@]}" |
      sed -n 's/^\([^ ]*\):$/\1/; T version; h; b; :version; s/^ *Candidate: \([^(].*\)/\1/; T; G; s/\(.*\)\n\(.*\)/\2=\1/p'
  } | LC_ALL=C sort -u >"$dir/pins"
  local missing
  missing=$(printf '%s\n' "${alone[@]}" | grep -v -x -F -f <(cut -d= -f1 "$dir/pins") || true)
  [[ -z $missing ]] || die "$conf: the suites of group $group have no:" "$missing" "change the packages in that file"
  lock_entries_of "$dir" "$group" >"$dir/entries"
}

# read_packages_conf CONF GROUP DIR: reads the lines of one group into suites, packages and alone, and its pins and
# left-out packages into the preferences and the status of apt's private root DIR.
read_packages_conf() {
  local word name rest group=all
  while read -r word name rest; do
    case $word in
      '' | '#'*) continue ;;
      group) group=$name && continue ;;
      suite | package | only | leave-out) ;;
      *) die "$1: unknown word: $word" "use group, suite, package, only or leave-out" ;;
    esac
    [[ $group == "$2" ]] || continue
    case $word in
      suite)
        suites+=("$name")
        [[ -z $rest ]] || printf 'Package: %s\nPin: release a=%s\nPin-Priority: %s\n\n' \
          "*" "$name" 1 "$rest" "$name" 990 >>"$3/preferences"
        ;;
      package) packages+=("$name") ;;
      only) alone+=("$name") ;;
      leave-out)
        printf '%s\n' "Package: $name" "Status: install ok installed" "Version: 99:1" "Architecture: amd64" \
          "Maintainer: none" "Description: left out" "" >>"$3/status"
        ;;
    esac
  done <"$WORKSPACE/$1"
}

# lock_entries_of DIR GROUP: prints "KiB ENTRY" for the "name=version" lines of DIR/pins, from what DIR/apt knows of
# them.
lock_entries_of() {
  local dir=$1
  local -a pins
  mapfile -t pins <"$dir/pins"
  private_apt "$dir/apt" apt-cache madison "${pins[@]%%=*}" |
    sed -n 's/^ *\([^ ]*\) | *\([^ ]*\) | *[^ ]* \([^ /]*\)\/main .*/\1 \2 \3/p' >"$dir/suites"
  private_apt "$dir/apt" apt-cache show "${pins[@]}" | awk -v group="$2" '
    !shown { suite[$1 " " $2] = $3; next }
    { field[$1] = $2 }
    /^$/ && ("Package:" in field) {
      key = field["Package:"] " " field["Version:"]
      if (!(key in done)) {
        done[key]
        print field["Installed-Size:"], key, field["SHA256:"], suite[key], field["Size:"], field["Filename:"], group
      }
      delete field["Package:"]
    }' "$dir/suites" shown=1 - <(echo)
}

# lock_text ENTRIES...: prints the lock for files of "KiB ENTRY" lines.
lock_text() {
  cat "$@" | awk '
    { kib += $1; bytes += $6; sub(/^[^ ]* /, ""); line[++n] = $0 }
    END {
      print "# Written by ./bazelw --refresh-lock from packages.conf; do not edit."
      print "# Fields: name version sha256 suite size path group. Architecture: amd64. Path: below the mirror."
      printf "# download-megabytes: %d\n# unpacked-megabytes: %d\n", bytes / 1e6, kib / 1024
      fflush()
      for (i = 1; i <= n; i++) print line[i] | "LC_ALL=C sort -k 7,7 -k 1,1"
    }'
}
