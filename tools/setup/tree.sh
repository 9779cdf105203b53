# shellcheck shell=bash
# Makes the private tree: the packages of third_party/debian/packages.lock, fetched with a private apt root, checked
# against the lock and unpacked. Sourced by bazelw, which supplies say, die, TREE, TREES, DIGEST, LOCK and enter.
# Runs no maintainer script and needs no rights: what such scripts would do is in tree_finish.
# Changing this file changes the tree's digest, so that everyone gets a new tree.
set -euo pipefail

readonly DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# Files nobody reads in the tree; they are not unpacked.
readonly -a NOT_UNPACKED=(
  './usr/share/doc/*' './usr/share/doc-base/*' './usr/share/man/*' './usr/share/info/*' './usr/share/locale/*'
  './usr/share/lintian/*' './usr/share/bug/*' './usr/share/maven-repo/*' './usr/share/nodejs/*'
  './usr/share/javascript/*' './usr/share/applications/*' './usr/share/icons/*' './usr/lib/jvm/*/jmods/*'
)

# Prints the locked packages as "name version sha256 suite" lines.
lock_entries() { grep -v -e '^#' -e '^$' "$LOCK"; }

# Prints the value of "# KEY: value" from the lock's header.
lock_header() { sed -n "s/^# $1: //p" "$LOCK"; }

# Prints candidate mirrors, best first: the override, or the URIs of this machine's own apt sources.
mirrors() {
  if [[ -n ${QOLA_DEBIAN_MIRROR:-} ]]; then
    printf '%s\n' "${QOLA_DEBIAN_MIRROR%/}"
    return
  fi
  local codename
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null)
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
  local dir=$1 mirror tried=
  shift
  [[ -r $DEBIAN_KEYRING ]] || die "no Debian keyring at $DEBIAN_KEYRING" \
    "apt cannot check Debian's signatures without it" "install the package debian-archive-keyring"
  while read -r mirror; do
    # Without the user and password a URI may hold.
    [[ $mirror =~ ^([^/]*//)([^/@]*@)?(.*)$ ]]
    say "asking ${BASH_REMATCH[1]}${BASH_REMATCH[3]} for: $*"
    apt_root "$dir" "$mirror" "$@"
    if private_apt "$dir" apt-get -q update >"$dir/update.log" 2>&1 &&
      ! grep -q '^[EW]: Failed' "$dir/update.log"; then
      return
    fi
    tried+=$'\n'$(grep -E '^(E|Err|W):?' "$dir/update.log" | head -n 4 | sed 's/^/  /')
  done < <(mirrors)
  die "no mirror serves Debian's suites: $*" "${tried:-  the apt sources of this machine name none}" \
    "name one that does: QOLA_DEBIAN_MIRROR=http://HOST/debian ./bazelw ..."
}

# Dies with every locked version the mirror does not offer.
check_offered() {
  local dir=$1 missing
  # shellcheck disable=SC2046  # one word per package is meant
  missing=$(private_apt "$dir" apt-cache madison $(lock_entries | cut -d' ' -f1) 2>/dev/null |
    awk '
      !locked { # "  name | version | source"
        split($0, f, / *[|] */); gsub(/ /, "", f[1])
        offered[f[1] " " f[2]]; found[f[1]] = found[f[1]] " " f[2]
        next
      }
      !(($1 " " $2) in offered) {
        printf "  %s: locked is %s, offered%s\n", $1, $2, ($1 in found) ? ":" found[$1] : " is nothing"
      }' - locked=1 <(lock_entries))
  [[ -z $missing ]] || die "the mirror does not have every version that ${LOCK#"$WORKSPACE"/} pins:" \
    "$missing" "take what it has: ./bazelw --refresh-lock   (then commit the lock)"
}

# Downloads every locked package into the current directory.
download() {
  local dir=$1 total
  total=$(lock_entries | wc -l)
  say "downloading $total packages ($(lock_header download-megabytes) MB)"
  # shellcheck disable=SC2046  # one word per package is meant
  private_apt "$dir" apt-get -q download $(lock_entries | awk '{ print $1 "=" $2 }') 2>&1 |
    tee "$dir/download.log" | progress "$total" ||
    die "the download failed:" "$(grep -E '^(E|Err):?' "$dir/download.log" | head -n 8)" \
      "run the same command again; what is complete is kept"
}

# progress TOTAL: counts apt's "Get:" lines, on one line of a terminal, otherwise now and then.
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

# Checks the sha256 of every package in the current directory against the lock.
verify() {
  local bad
  say "checking sha256 of every package"
  bad=$(find . -name '*.deb' -print0 | xargs -0 -P "$(nproc)" -n 32 sha256sum |
    awk '
      !locked { # "sha256  ./name_version_arch.deb", a colon in the version as %3a
        file = $2; sub(/^\.\//, "", file); gsub(/%3a/, ":", file); split(file, f, "_")
        sum[f[1] " " f[2]] = $1
        next
      }
      { key = $1 " " $2 }
      !(key in sum) { printf "  %s: not downloaded\n", key; next }
      sum[key] != $3 { printf "  %s: sha256 is %s, locked is %s\n", key, sum[key], $3 }' - locked=1 <(lock_entries))
  [[ -z $bad ]] || discard_bad "$bad"
  [[ -z $bad ]] || die "packages that differ from ${LOCK#"$WORKSPACE"/} are refused:" "$bad" \
    "try again; if the mirror rebuilt the package: ./bazelw --refresh-lock"
}

# discard_bad LINES: removes the refused packages, so that the next try fetches them anew.
discard_bad() {
  local name
  while read -r name _; do
    rm -f -- "./$name"_*.deb
  done <<<"$1"
}

# unpack ROOT: unpacks every package of the current directory into ROOT, base-files (the links /bin, /lib) first.
unpack() {
  local root=$1
  say "unpacking"
  mkdir -p "$root"
  printf '%s\n' "${NOT_UNPACKED[@]}" >../not-unpacked
  # shellcheck disable=SC2016  # expanded by the inner shell
  local one='set -o pipefail; for deb; do dpkg-deb --fsys-tarfile "$deb" |
    tar -x -p --no-same-owner -C "$root" --exclude-from=../not-unpacked || { echo "$deb" >&2; exit 255; }; done'
  export root
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
  local partial=$TREE.partial start=$SECONDS suites
  mkdir -p -- "$TREES" 2>/dev/null || die "cannot write to $CACHE" "set QOLA_CACHE_HOME to a directory of yours"
  need_space
  exec 9>>"$TREE.lock"
  if ! flock -n 9; then
    say "another set-up of the same tree is running; waiting for it"
    flock 9
  fi
  if [[ -d $TREE ]]; then
    return
  fi
  remove_dead
  rm -rf -- "$partial/root" "$partial/apt"
  mkdir -p "$partial/debs"
  say "setting up Bazel, hipcc and Python in $TREE (once; $(lock_header download-megabytes) MB to download)"
  mapfile -t suites < <(lock_entries | cut -d' ' -f4 | sort -u)
  cd "$partial/debs"
  apt_update "$partial/apt" "${suites[@]}"
  check_offered "$partial/apt"
  download "$partial/apt"
  verify
  unpack "$partial/root"
  cd "$WORKSPACE"
  tree_finish "$partial/root"
  mv -T "$partial/root" "$TREE"
  rm -rf -- "$partial"
  say "set up in $((SECONDS - start)) s"
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
