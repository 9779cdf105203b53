#!/usr/bin/env bash
# unpack_packages.sh ROOT DEB...: unpacks Debian packages into ROOT so that what is in it holds together wherever ROOT
# is moved. Without DEBs only the latter, for what was unpacked by other means. rules_hip/repositories/debian_packages.bzl runs
# it; a changed file unpacks anew.
set -euo pipefail
root=$1
shift

# Files nobody reads there.
readonly NOT_UNPACKED="doc doc-base man info locale lintian bug applications icons bash-completion"

# unpack_some DEB...: unpacks packages into the current directory.
unpack_some() {
  local deb
  local -a exclude=()
  read -r -a exclude <<<"$NOT_UNPACKED"
  for deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner "${exclude[@]/#/--exclude=./usr/share/}" ||
      { echo "$deb" >&2 && exit 255; }
  done
}
export -f unpack_some
export NOT_UNPACKED

mkdir -p "$root"
if (($#)); then
  realpath -z -- "$@" | (cd "$root" && xargs -0 -P "$(nproc)" -n 4 bash -euo pipefail -c 'unpack_some "$@"' _)
fi

cd "$root"
for path in $NOT_UNPACKED; do
  rm -rf "usr/share/$path"
done

# Absolute links mean the machine's files: those whose target is in ROOT become relative. Others go, and with them every
# link to nothing: it may be in a package that was left out, and is no input an action can have.
here=$(pwd -P)
find . -type l -lname '/*' | while IFS= read -r link; do
  target=$(readlink "$link")
  target=${target#"$here"}
  up=$(dirname "$link" | sed 's|^\./*||; s|[^/][^/]*|..|g')
  rm "$link"
  [[ ! -e $here$target && ! -L $here$target ]] || ln -s "${up:-.}$target" "$link"
done
find . -xtype l -delete

# Directories that a package closes to others would fail every copy; files are shared by hard links, so nobody writes.
find . -type d ! -perm -755 -exec chmod u+rwx,go+rx {} +
find . -type f -perm /6222 -exec chmod a-w,a-s {} +
