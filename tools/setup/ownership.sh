#!/usr/bin/env bash
# ownership.sh PATH...: prints why what lies at one of these may be another user's, and fails. Nothing is run from such
# a place: bazelw sources this, debian_packages.bzl runs it; qola_base/cache.py and runtime/lazy/ownership.cpp have the rule
# for Python and for lazy libraries.
set -euo pipefail

# distrust PATH...: prints why the first of these is not to be trusted; fails if all are. A path, where it is there,
# has to be this user's or root's, and writable by nobody else. Above it, and above where links lead, nobody else may
# replace anything.
distrust() {
  local path user mode name facts everybody=
  local -a above=(/)
  while IFS= read -r -d '' path; do
    while [[ $path != / && -n $path ]]; do
      above+=("$path")
      path=${path%/*}
    done
  done < <(printf '%s\0' "$@" && readlink -zm -- "$@")
  while IFS=' ' read -r -d '' user mode name; do
    printf -v facts '(mode %04o, owner %d)' "$((16#$mode & 8#7777))" "$user"
    # In a user namespace root may be shown as nobody: it has the root directory.
    everybody=${everybody:-$user}
    if ((user != 0 && user != EUID && user != everybody)); then
      printf '%s is another user'\''s %s\n' "$name" "$facts"
      return
    elif ((16#$mode >> 12 != 8#12 && (16#$mode & 8#1002) == 2)); then
      printf '%s is writable by everybody %s\n' "$name" "$facts"
      return
    fi
  done < <(stat --printf '%u %f %n\0' -- "${above[@]}" 2>/dev/null)
  while IFS=' ' read -r -d '' user mode name; do
    printf -v facts '(mode %04o, owner %d)' "$((16#$mode & 8#7777))" "$user"
    if ((user != 0 && user != EUID)); then
      printf '%s is another user'\''s %s\n' "$name" "$facts"
      return
    elif ((16#$mode & 8#22)); then
      printf '%s is writable by others %s\n' "$name" "$facts"
      return
    fi
  done < <(stat -L --printf '%u %f %n\0' -- "$@" 2>/dev/null)
  return 1
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  if distrust "$@"; then
    exit 1
  fi
fi
