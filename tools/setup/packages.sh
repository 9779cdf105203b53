# shellcheck shell=bash
# Fetches the Debian packages of a lock into the current directory. Sourced by bazelw, which supplies say and LOCK, and
# by fetch_packages.sh. What comes is checked by the lock's digests, so that it does not matter who serves it, and
# nothing here is part of a tree's digest.
set -euo pipefail
! declare -F fetch_packages >/dev/null || return 0

# Debian's public archive of every state it ever had; below it, a time.
readonly SNAPSHOT=https://snapshot.debian.org/archive/debian
readonly APT_HELPER=${APT_HELPER:-/usr/lib/apt/apt-helper}

# Prints the locked packages as "name version sha256 suite size path group" lines.
lock_entries() { grep -v -e '^#' -e '^$' "$LOCK"; }

# Prints the value of "# KEY: value" from the lock's header.
lock_header() { sed -n "s/^# $1: //p" "$LOCK"; }

# Prints the lock's suites.
lock_suites() { lock_entries | cut -d' ' -f4 | sort -u; }

# Prints the time of a lock, 20261030T140801Z, as people read it.
lock_date() { lock_header snapshot | sed -E 's/^(.{4})(..)(..)T(..)(..).*/\1-\2-\3 \4:\5 UTC/'; }

# Prints the URIs of this machine's own apt sources, best first.
apt_mirrors() {
  local codename
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null) || true
  ! type -P apt-get >/dev/null ||
    # apt itself reads both formats of its sources; it prints where it would fetch each suite's InRelease.
    apt-get --print-uris update 2>/dev/null |
    sed -n "s|^'\(.*\)/dists/\([^/']*\)/InRelease'.*|\2 \1|p" |
      awk -v own="$codename" '
      $1 ~ /security|updates|backports/ { next }
      { line[++n] = $0 }
      END { for (pass = 0; pass < 2; pass++)
              for (i = 1; i <= n; i++) { split(line[i], f, " ")
                if ((f[1] == own) == (pass == 0) && !seen[f[2]]++) print f[2] } }'
}

# Prints who may have packages, in the order in which they are asked, as "KIND URI" lines.
sources() {
  local time
  [[ -z ${QOLA_DEBIAN_MIRROR:-} ]] || printf 'named %s\n' "${QOLA_DEBIAN_MIRROR%/}"
  apt_mirrors | sed 's/^/machine /'
  time=$(lock_header snapshot)
  # Digests say what it is, so a machine without certificates may ask without them.
  [[ -z $time ]] || printf 'snapshot %s/%s\n' "$SNAPSHOT" "$time" "${SNAPSHOT/#https:/http:}" "$time"
}

# bare URI: prints it without the user and password it may hold.
bare() {
  [[ $1 =~ ^([^/]*//)([^/@]*@)?(.*)$ ]]
  printf '%s%s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[3]}"
}

# is_debian URI SUITE...: whether Debian's archive is there, with one of these suites: apt sources may name another
# distribution's, and a snapshot that does not answer is asked once, not for each package.
is_debian() {
  local suite scratch found=1
  scratch=$(mktemp -d)
  for suite in "${@:2}"; do
    printf '%s\n' "$1/dists/$suite/InRelease $scratch/$suite" | download >/dev/null 2>&1 || true
    if grep -q -s '^Origin: Debian$' "$scratch/$suite"; then
      found=0
      break
    fi
  done
  rm -rf -- "$scratch"
  return "$found"
}

# download: reads "URL FILE [SHA256]" lines and fetches what is there, with a "Get:" line for each; the first program
# of three that this machine has: apt's own knows its proxies and credentials.
download() {
  local url file
  if [[ -x $APT_HELPER ]]; then
    # Without the sandbox user, who may not write here. apt's method for files fetches nothing.
    sed -E 's/ ([0-9a-f]{64})$/ SHA256:\1/; s/^file:/copy:/' |
      LC_ALL=C xargs -r -n 300 "$APT_HELPER" -q -o APT::Sandbox::User=root download-file
  elif type -P curl >/dev/null; then
    while read -r url file _; do
      printf 'url = "%s"\noutput = "%s"\n' "$url" "$file"
    done | curl --silent --show-error --fail --location --retry 2 --connect-timeout 15 --speed-limit 1 --speed-time 60 \
      --write-out 'Get: %{url_effective}\n' --config -
  else
    while read -r url file _; do
      if wget -q --tries=3 --timeout=20 -O "$file" "$url"; then echo "Get: $url"; else rm -f -- "$file"; fi
    done
  fi
}

# progress TOTAL: counts "Get:" lines, on one line of a terminal, otherwise now and then.
progress() {
  local line count=0
  while read -r line; do
    [[ $line == Get:* ]] || continue
    count=$((count + 1))
    if [[ -t 2 ]]; then
      printf '\rbazelw:   %d of %d' "$count" "$1" >&2
    elif ((count % 50 == 0)); then
      say "  $count of $1"
    fi
  done
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
}

# missing_packages: prints the lock's entries that the current directory lacks. A file that is not the locked one is
# refused by name and removed.
missing_packages() {
  local entry file sum
  local -A state=()
  while read -r entry; do
    state[${entry%%: *}]=${entry#*: }
  done < <(lock_entries | awk '{ sub(/.*\//, "", $6); print $3 "  " $6 }' |
    LC_ALL=C sha256sum --check 2>/dev/null || true)
  while read -r entry; do
    # shellcheck disable=SC2086  # its fields are meant
    set -- $entry
    file=${6##*/}
    [[ ${state[$file]-} != OK ]] || continue
    if [[ ${state[$file]-} == FAILED ]]; then
      sum=$(sha256sum <"$file")
      say "refused: $1 $2: sha256 is ${sum%% *}, locked is $3"
      rm -f -- "$file"
    fi
    echo "$entry"
  done < <(lock_entries)
}

# fetch_from URI: fetches what the current directory lacks from one place.
fetch_from() {
  local count megabytes errors
  count=$(wc -l <missing)
  megabytes=$(awk '{ bytes += $5 } END { printf "%d", bytes / 1e6 }' missing)
  say "fetching $count packages ($megabytes MB) from $(bare "$1")"
  errors=$(mktemp)
  awk -v base="$1" '{
    file = path = $6
    sub(/.*\//, "", file); gsub(/\+/, "%2B", path); gsub(/~/, "%7E", path)
    print base "/" path, file, $3 }' missing | download 2>"$errors" | progress "$count" || true
  grep -v -e 'Download Failed' "$errors" | head -n 8 >&2 || true
  rm -f -- "$errors"
}

# fetch_packages: fetches every locked package that the current directory lacks from the first source that has it.
# Returns 1 where some are nowhere; the file `missing` has their entries, and `asked` a line per source.
fetch_packages() {
  local kind uri
  local -a suites
  mapfile -t suites < <(lock_suites)
  : >asked
  missing_packages >missing
  while [[ -s missing ]] && read -r kind uri <&4; do
    if [[ $kind != named ]] && ! is_debian "$uri" "${suites[@]}"; then
      echo "  $(bare "$uri"): does not answer, or is not Debian's archive" >>asked
      continue
    fi
    fetch_from "$uri"
    missing_packages >missing
    echo "  $(bare "$uri"): lacks $(wc -l <missing)" >>asked
  done 4< <(sources)
  [[ ! -s missing ]]
}

# missing_text: prints what fetch_packages did not find, and whom it asked.
missing_text() {
  awk '{ print "  " $1 " " $2 }' missing
  echo "asked:"
  if [[ -s asked ]]; then cat asked; else echo "  nobody: no mirror is named, and the lock has no time"; fi
}

# deb_tar DEB: prints the tar of a package's files; without dpkg, by reading the ar archive that a package is.
deb_tar() {
  local at=8 header name size
  if type -P dpkg-deb >/dev/null; then
    dpkg-deb --fsys-tarfile "$1"
    return
  fi
  while header=$(dd if="$1" iflag=skip_bytes,count_bytes skip="$at" count=60 status=none) && [[ -n $header ]]; do
    read -r name <<<"${header:0:16}"
    read -r size <<<"${header:48:10}"
    at=$((at + 60))
    if [[ $name == data.tar* ]]; then
      dd if="$1" bs=1M iflag=skip_bytes,count_bytes skip="$at" count="$size" status=none |
        case ${name%/} in
          *.xz) xz -dc ;;
          *.zst) zstd -dc ;;
          *.gz) gzip -dc ;;
          *) cat ;;
        esac
      return
    fi
    at=$((at + size + size % 2))
  done
  return 1
}
