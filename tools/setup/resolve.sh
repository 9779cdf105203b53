# shellcheck shell=bash
# Resolves a packages.conf with apt, in a private root, from suites that Debian signs. Sourced by bazelw.
set -euo pipefail
! declare -F resolve >/dev/null || return 0

# shellcheck source=tools/setup/packages.sh
source "$SETUP/packages.sh"
readonly DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# apt_root DIR MIRROR SUITE...: a private apt configuration in DIR that knows only these suites of MIRROR.
apt_root() {
  local dir=$1 mirror=$2 suite
  shift 2
  mkdir -p "$dir"/{lists/partial,archives/partial,preferences.d}
  [[ -e $dir/status ]] || : >"$dir/status"
  for suite; do
    printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$DEBIAN_KEYRING" "$mirror" "$suite"
  done >"$dir/sources.list"
  {
    # The machine's own network settings (proxies, retries, credentials); none of its hooks and index lists.
    apt-config dump | grep -E '^Acquire::(http|https|ftp|tor|socks|Retries|ForceIP|Proxy|Max|Queue)' || true
    cat <<EOF
Dir::State "$dir";
Dir::State::status "$dir/status";
Dir::State::lists "$dir/lists";
Dir::Cache "$dir";
Dir::Cache::archives "$dir/archives";
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::preferences "$dir/preferences";
Dir::Etc::preferencesparts "$dir/preferences.d";
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
Acquire::Languages "none";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
EOF
  } >"$dir/apt.conf"
}

# private_apt DIR COMMAND...: runs an apt program in the private root.
private_apt() {
  local dir=$1
  shift
  APT_CONFIG=$dir/apt.conf LC_ALL=C "$@"
}

# apt_update DIR SUITE...: tries each mirror until one serves the suites.
apt_update() {
  local dir=$1 kind mirror tried=
  shift
  type -P apt-get apt-cache apt-config >/dev/null || die "Debian's suites cannot be read without apt" \
    "apt checks their signatures and resolves what they offer" "install apt and debian-archive-keyring"
  [[ -r $DEBIAN_KEYRING ]] || die "no Debian keyring at $DEBIAN_KEYRING" \
    "apt cannot check Debian's signatures without it" "install the package debian-archive-keyring"
  while read -r kind mirror; do
    # What is asked for is what suites offer now.
    [[ $kind != snapshot ]] || continue
    say "asking $(bare "$mirror") for: $*"
    apt_root "$dir" "$mirror" "$@"
    if private_apt "$dir" apt-get -q update >"$dir/update.log" 2>&1 &&
      ! grep -q '^[EW]: Failed' "$dir/update.log"; then
      return
    fi
    tried+=$'\n'$(grep -E '^(E|Err|W):?' "$dir/update.log" | head -n 4 | sed 's/^/  /')
  done < <(sources)
  die "no mirror serves Debian's suites: $*" "${tried:-  the apt sources of this machine name none}" \
    "name one that does: QOLA_DEBIAN_MIRROR=http://HOST/debian ./bazelw ..."
}

# resolve DIRECTORY SCRATCH: resolves the packages.conf of a directory of the workspace; writes SCRATCH/packages.lock
# and, for the ROCm, SCRATCH/sdk.json.
resolve() {
  local conf=$1/packages.conf group
  while read -r group; do
    mkdir -p "$2/$group/apt"
    resolve_group "$conf" "$group" "$2/$group"
  done < <(groups "$conf")
  lock_text "$(state_time "$2"/*/apt/lists/*InRelease)" "$2"/*/entries >"$2/packages.lock"
  [[ ! -f $WORKSPACE/$1/sdk.json ]] || sdk_json "$WORKSPACE/$1/sdk.json" "$2"
}

# state_time INRELEASE...: prints a time at which the public snapshot archive has what these suites offer: it takes a
# state some hours after the newest of them is signed, and the pool keeps what was superseded for longer than that.
state_time() {
  local date newest=0 seconds
  while read -r date; do
    seconds=$(date -u -d "$date" +%s)
    ((seconds <= newest)) || newest=$seconds
  done < <(sed -n 's/^Date: //p' "$@")
  date -u -d "@$((newest + 6 * 3600))" +%Y%m%dT%H%M%SZ
}

# sdk_json OLD SCRATCH: writes SCRATCH/sdk.json, with the versions of the compiler and the HIP of SCRATCH/packages.lock.
# Which optional flags a compiler accepts only itself can say: they stay as they are.
sdk_json() {
  local clang rocm hip dir=$2
  clang=$(upstream_version 'clang-[0-9]*' "$dir/packages.lock")
  rocm=$(upstream_version libamdhip64-dev "$dir/packages.lock")
  (cd "$dir" && private_apt "$dir/compiler/apt" apt-get -q download libamdhip64-dev >download.log 2>&1) ||
    die "libamdhip64-dev cannot be fetched:" "$(tail -n 3 "$dir/download.log")" "run the same command again"
  # In it: HIP_VERSION_MAJOR=7 and so on.
  hip=$(deb_tar "$dir"/libamdhip64-dev_*.deb | tar -xO ./usr/share/hip/version |
    sed -n 's/^HIP_VERSION_\(MAJOR\|MINOR\|PATCH\)=//p' | paste -s -d .)
  sed -e "s/\"clang_version\": \"[^\"]*\"/\"clang_version\": \"$clang\"/" \
    -e "s/\"hip_version\": \"[^\"]*\"/\"hip_version\": \"$hip\"/" \
    -e "s/\"rocm_version\": \"[^\"]*\"/\"rocm_version\": \"$rocm\"/" "$1" >"$dir/sdk.json"
}

# upstream_version GLOB LOCK: prints the version of a locked package without epoch and revision.
upstream_version() {
  local name number
  while read -r name number _; do
    # shellcheck disable=SC2053  # a pattern is meant
    if [[ $name == $1 ]]; then
      number=${number#*:}
      echo "${number%%[-+~]*}"
      return
    fi
  done < <(grep -v '^#' "$2")
}

# refresh DIRECTORY: rewrites the lock of a directory of the workspace, and what depends on it.
refresh() {
  local lock=$WORKSPACE/$1/packages.lock dir
  dir=$(mktemp -d)
  # shellcheck disable=SC2064  # the value of now is meant
  trap "rm -rf -- '$dir'" EXIT
  resolve "$1" "$dir"
  touch -- "$lock"
  if diff <(grep -v '^#' "$lock") <(grep -v '^#' "$dir/packages.lock") >"$dir/changes" &&
    grep -q '^# snapshot: ' "$lock"; then
    say "$1/packages.lock is up to date"
  else
    sed -n 's/^\([<>] [^ ]* [^ ]*\).*/  \1/p' "$dir/changes" >&2
    cat "$dir/packages.lock" >"$lock"
    say "wrote $1/packages.lock: $(grep -c -v '^#' "$lock") packages"
  fi
  if [[ -f $dir/sdk.json ]] && ! cmp -s "$dir/sdk.json" "$WORKSPACE/$1/sdk.json"; then
    cat "$dir/sdk.json" >"$WORKSPACE/$1/sdk.json"
    say "wrote $1/sdk.json, but for optional_flags: ./bazelw test //tests/setup:test_sdk says whether they are right"
  fi
  refresh_docs "$1"
}

# refresh_docs DIRECTORY: puts the figures of a lock into the pages that have them.
refresh_docs() {
  local LOCK=$WORKSPACE/$1/packages.lock docs=$WORKSPACE/docs/guide megabytes
  [[ -d $docs ]] || return 0
  megabytes=$(lock_header download-megabytes)
  case $1 in
    third_party/debian)
      sed -i "s/^| Download | .* |\$/| Download | $megabytes MB, $(lock_entries | wc -l) packages |/" "$docs/setup.md"
      ;;
    third_party/rocm) sed -i "s/It is fetched ([0-9]* MB)/It is fetched ($megabytes MB)/" "$docs/bazel.md" ;;
  esac
}

# offer DIRECTORY: resolves what suites offer now in place of a lock whose packages are nowhere, beside the trees.
offer() {
  local place scratch
  place=$(offered_directory "$1")
  say "WARNING: resolving what Debian's suites offer now, in place of $1/packages.lock"
  make_directory "$place"
  scratch=$(mktemp -d -p "$place")
  # shellcheck disable=SC2064  # the value of now is meant
  trap "rm -rf -- '$scratch'" EXIT
  resolve "$1" "$scratch"
  [[ ! -f $scratch/sdk.json ]] || mv -f -- "$scratch/sdk.json" "$place/"
  mv -f -- "$scratch/packages.lock" "$place/"
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
  local word name rest group=all llvm
  # The one place of LLVM's major version.
  llvm=$(cat -- "$WORKSPACE/third_party/rocm/llvm_major" 2>/dev/null) || true
  while read -r word name rest; do
    name=${name//"{llvm}"/$llvm}
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

# lock_text TIME ENTRIES...: prints the lock for files of "KiB ENTRY" lines.
lock_text() {
  cat "${@:2}" | awk -v time="$1" '
    { kib += $1; bytes += $6; sub(/^[^ ]* /, ""); line[++n] = $0 }
    END {
      print "# Written by ./bazelw --refresh-lock from packages.conf; do not edit."
      print "# Fields: name version sha256 suite size path group. Architecture: amd64. Path: below the mirror."
      print "# snapshot: " time
      printf "# download-megabytes: %d\n# unpacked-megabytes: %d\n", bytes / 1e6, kib / 1024
      fflush()
      for (i = 1; i <= n; i++) print line[i] | "LC_ALL=C sort -k 7,7 -k 1,1"
    }'
}
