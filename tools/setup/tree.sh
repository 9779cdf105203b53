# shellcheck shell=bash
# Makes the private tree: the packages of the lock, unpacked. Sourced by bazelw, which supplies say, die, TREE, TREES,
# DIGEST, LOCK, MISSING and enter.
# Runs no maintainer script and needs no rights: what such scripts would do is in tree_finish.
# Changing this file changes the tree's digest, so that everyone gets a new tree.
set -euo pipefail

# shellcheck source=tools/setup/packages.sh
source "$SETUP/packages.sh"

# Files nobody reads in the tree; they are not unpacked.
readonly -a NOT_UNPACKED=(
  './usr/share/doc/*' './usr/share/doc-base/*' './usr/share/man/*' './usr/share/info/*' './usr/share/locale/*'
  './usr/share/lintian/*' './usr/share/bug/*' './usr/share/maven-repo/*' './usr/share/nodejs/*'
  './usr/share/javascript/*' './usr/share/applications/*' './usr/share/icons/*' './usr/lib/jvm/*/jmods/*'
)

# unpack ROOT: unpacks every package of the current directory into ROOT, base-files (the links /bin, /lib) first.
unpack() {
  local root=$1
  say "unpacking"
  mkdir -p "$root"
  printf '%s\n' "${NOT_UNPACKED[@]}" >../not-unpacked
  # shellcheck disable=SC2016  # expanded by the inner shell
  local one='set -o pipefail; for deb; do deb_tar "$deb" |
    tar -x -p --no-same-owner -C "$root" --exclude-from=../not-unpacked || { echo "$deb" >&2; exit 255; }; done'
  export root
  export -f deb_tar
  bash -c "$one" _ base-files_*.deb || die "base-files could not be unpacked" "./bazelw --doctor (is the disk full?)"
  # The largest first, so that both ends of the list finish together.
  find . -name '*.deb' ! -name 'base-files_*' -printf '%s %p\0' | sort -zrn | sed -z 's/^[0-9]* //' |
    xargs -0 -P "$(nproc)" -n 1 bash -c "$one" _ ||
    die "a package could not be unpacked (named above)" "./bazelw --doctor (is the disk full?)"
}

# tree_finish ROOT: what the packages' maintainer scripts would do, as far as the tree needs it.
tree_finish() {
  local root=$1 link
  say "finishing"
  for link in cc:gcc c++:g++ awk:gawk java:/usr/lib/jvm/default-java/bin/java which:which.debianutils; do
    ln -sfn "${link#*:}" "$root/usr/bin/${link%%:*}"
  done
  ln -sfn java-21-openjdk-amd64 "$root/usr/lib/jvm/default-java"
  ln -sfn /usr/share/qola/cacerts "$root/usr/lib/jvm/default-java/lib/security/cacerts"
  mkdir -p "$root"/{etc/ssl/certs,usr/share/qola}
  find "$root" -perm /6000 -exec chmod a-s {} +
  printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$root/etc/nsswitch.conf"
  cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
  cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
  # In place of Debian's, which overrides modules by path and keeps every sandbox.
  cat >"$root/etc/bazel/bazelrc" <<EOF
startup --install_base=/usr/share/bazel --trust_install_base --server_javabase=/usr/lib/jvm/default-java
# Names the tree in the server's command line: Bazel restarts a server of another tree, and --uninstall finds it.
startup "--host_jvm_args=-Dqola.tree=$TREE"
# The modules Debian packages, in place of the Bazel Central Registry, to which alone a lock file applies.
common --registry=file:///usr/share/qola/registry --lockfile_mode=off
common --java_runtime_version=local_jdk --tool_java_runtime_version=local_jdk
common --repo_env=JAVA_HOME=/usr/lib/jvm/default-java
# Bazel 7's WORKSPACE defaults would be downloaded.
common --noenable_workspace
EOF
  cp "$SETUP/make_registry.py" "$root/usr/share/qola/"
  # Only Python files that are meant for older Pythons fail to compile, and nobody loads those.
  # shellcheck disable=SC2016  # expanded by the inner shell
  (in_namespace "$root" --bind --bind /tmp /tmp -- /bin/sh -ec '
    ldconfig
    ln -s /usr/share/ca-certificates/mozilla/*.crt /etc/ssl/certs/
    openssl rehash /etc/ssl/certs
    cat /usr/share/ca-certificates/mozilla/*.crt >/etc/ssl/certs/ca-certificates.crt
    python3 /usr/share/qola/make_registry.py --bazel /usr/share/bazel --out /usr/share/qola/registry
    python3 -m compileall -q -j 0 -x "/(tests?|idlelib)/" /usr/lib/python3.* /usr/lib/python3 >&2 || true
    java -Xshare:dump >/dev/null 2>&1 || true
    bazel --version && hipcc --version && patchelf --version' >/dev/null) ||
    die "the unpacked programs do not run (messages above)" "./bazelw --doctor"
  make_trust_store "$root"
}

# make_trust_store ROOT: Java's certificates, made from those that show in the tree: the machine's, else the tree's own.
make_trust_store() {
  local store=$1/usr/share/qola/cacerts
  (enter "$1" openssl pkcs12 -export -nokeys -jdktrust anyExtendedKeyUsage -keypbe NONE -certpbe NONE -nomac \
    -passout pass: -in /etc/ssl/certs/ca-certificates.crt) >"$store.$$" ||
    die "the certificates in /etc/ssl/certs/ca-certificates.crt cannot be read" \
      "update-ca-certificates, as the administrator"
  mv -f -- "$store.$$" "$store"
}

# make_tree: makes $TREE beside its final place and renames it there. Holds the lock of this digest throughout.
make_tree() {
  local partial=$TREE.partial start=$SECONDS
  make_directory "$TREES"
  umask go-w
  need_space
  exec 9>>"$TREE.lock"
  if ! flock -n 9; then
    say "another set-up of the same tree is running; waiting for it"
    flock 9
  fi
  if [[ -d $TREE ]]; then
    # There where a set-up was killed at its very end.
    rm -rf -- "$partial"
    return
  fi
  remove_dead
  rm -rf -- "$partial/root"
  mkdir -p "$partial/debs"
  say "setting up Bazel, hipcc and Python in $TREE (once; $(lock_header download-megabytes) MB to download)"
  cd "$partial/debs"
  fetch_packages || nowhere
  unpack "$partial/root"
  cd "$WORKSPACE"
  tree_finish "$partial/root"
  mv -T "$partial/root" "$TREE"
  rm -rf -- "$partial"
  say "set up in $((SECONDS - start)) s"
}

# nowhere: says which packages nobody has; ends with MISSING, or as an error where the lock was resolved just now.
nowhere() {
  local found
  found="$(wc -l <missing) of $(lock_entries | wc -l) packages that ${LOCK#"$WORKSPACE"/} pins, as of $(lock_date),"
  found+=" are nowhere:"
  [[ $LOCK == "$WORKSPACE/third_party/debian/packages.lock" ]] ||
    die "$found" "$(missing_text)" "rm -r ${LOCK%/*}   (the next call resolves anew)"
  say "$found"
  missing_text >&2
  exit "$MISSING"
}

# Dies if the disk cannot hold the packages and the tree at once.
need_space() {
  local need free
  need=$(($(lock_header download-megabytes) + $(lock_header unpacked-megabytes)))
  free=$(free_megabytes)
  ((free >= need)) || die "the tree needs $need MB while it is made, $TREES has $free MB free" \
    "make room, or set QOLA_CACHE_HOME to a directory on another disk"
}

# Prints the megabytes this user may still write below $CACHE.
free_megabytes() {
  local dir=$TREES
  until [[ -d $dir ]]; do dir=$(dirname -- "$dir"); done
  df -Pm -- "$dir" | awk 'NR == 2 { print $4 }'
}

# Removes what set-ups that died left of other trees, and trees that no call used for 30 days.
remove_dead() {
  local left
  while read -r left; do
    say "removing a tree that was not used for 30 days: ${left%.lock}"
    rm -rf -- "${left%.lock}" "$left"
  done < <(find "$TREES" -maxdepth 1 -name '*.lock' ! -path "$TREE.lock" -mtime +30)
  for left in "$TREES"/*.partial; do
    [[ -d $left && $left != "$TREE.partial" ]] || continue
    (
      flock -n 8 || exit 0
      say "removing an unfinished set-up: $left"
      chmod -R u+w -- "$left"
      rm -rf -- "$left"
    ) 8>>"${left%.partial}.lock"
  done
}
