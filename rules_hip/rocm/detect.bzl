"""Finds a local ROCm and asks its compiler what it is: the reading half of the ROCm repository."""

load(":flags.bzl", "AMD_CLANG_ONLY", "OPTIONAL_FLAGS", "llvm_tools")

# Where ROCm is looked for when neither the tag nor ROCM_PATH names a place: AMD's packages,
# then the layout of Debian's.
USUAL_PREFIXES = ["/opt/rocm", "/usr"]

def candidate_prefixes(path, rocm_path_env):
    """Returns the prefixes to try, in order: the path of hip.toolkit or ROCM_PATH alone, or else the usual ones.

    Falling back from an explicit choice would hide its being wrong.
    """
    named = path or rocm_path_env
    return [named] if named else USUAL_PREFIXES

def parse_version(text):
    """Reads `hipcc --version`.

    Args:
      text: the standard output of the command.

    Returns:
      A struct with hip_version ("7.2.53211"), clang_version ("22.1.8"),
      amd_clang (bool) and clang_dir (directory of the clang that hipcc runs);
      None where the text has no such lines.
    """
    found = {"amd_clang": False, "clang_dir": "", "clang_version": "", "hip_version": ""}
    for line in text.splitlines():
        if line.startswith("HIP version:"):
            found["hip_version"] = line.split(":")[1].strip().split("-")[0]
        elif "clang version" in line:
            found["amd_clang"] = line.startswith("AMD ")
            found["clang_version"] = line.split("clang version")[1].strip().split(" ")[0]
        elif line.startswith("InstalledDir:"):
            found["clang_dir"] = line.split(":", 1)[1].strip()
    if not found["hip_version"] or not found["clang_dir"]:
        return None
    return struct(**found)

def parse_include_dirs(text):
    """Reads the include search lists of `-E -v`.

    Args:
      text: standard error of the compiler, one list per pass (host, device).

    Returns:
      The directories in order of appearance, each once.
    """
    dirs = {}
    inside = False
    for line in text.splitlines():
        if line.startswith("#include "):
            inside = True
        elif line.startswith("End of search list"):
            inside = False
        elif inside:
            dirs[line.strip()] = True
    return dirs.keys()

_BITCODE = "-mlink-builtin-bitcode "

def parse_device_libraries(text):
    """Reads where clang takes HIP's device libraries from: by ROCm's layout, in one of several directories.

    Args:
      text: standard error of `-v` for a GPU.

    Returns:
      The directories in order of appearance, each once.
    """
    dirs = {}
    for part in text.split(_BITCODE)[1:]:
        # Quoted if it has a blank.
        path = part[1:].partition("\"")[0] if part.startswith("\"") else part.split(" ")[0].strip()
        dirs[path.rpartition("/")[0]] = True
    return dirs.keys()

_LINES = 20

def failed_command(program, argument, result):
    """Returns what a program printed that does not work.

    Args:
      program: its path.
      argument: string, the option that was tried.
      result: struct(return_code, stderr, stdout).
    """
    lines = (result.stderr.strip() or result.stdout.strip() or "it prints nothing").splitlines()

    # The first error of a compiler is the cause of the others.
    rest = ["..."] if len(lines) > _LINES else []
    return "\n".join(["{} {}: exit code {}".format(program, argument, result.return_code)] + lines[:_LINES] + rest)

def optional_flags(probe, amd_clang):
    """Returns, as a flat list, the OPTIONAL_FLAGS that probe(list of arguments) finds the compiler to accept."""
    return [
        word
        for flag in OPTIONAL_FLAGS
        if (amd_clang or flag not in AMD_CLANG_ONLY) and probe(flag)
        for word in flag
    ]

_EMPTY_COMPILE = ["-x", "hip", "--offload-arch=gfx942", "-E", "/dev/null", "-o", "/dev/null"]

def _probe(rctx, command):
    return lambda flag: rctx.execute(command + flag + _EMPTY_COMPILE).return_code == 0

def _command(prefix, hipcc):
    # An empty environment, as actions have it: HIP_PATH, HIP_CLANG_PATH and
    # others would answer for another compiler than the one that builds.
    # HIP_PLATFORM: without it hipcc looks for a device and says so each time.
    # ROCM_PATH: a distribution's clang under /usr has the device libraries in
    # its resource directory and finds them only when no path is named.
    named = [] if prefix == "/usr" else ["ROCM_PATH=" + prefix]
    return ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "HIP_PLATFORM=amd"] + named + [hipcc]

# Prints the files that decide what a compile gives: compiler, linker and their
# libraries, the compiler's own headers and those of HIP, device libraries (in the
# directories before --), headers of C++ and C (in those after it).
_IDENTITY_FILES = """
set -e
hipcc=$1 llvm=$2 include=$3
libraries=$(ldd "$llvm/clang" | sed -n 's,.*=> \\(/[^ ]*\\(LLVM\\|clang\\)[^ ]*\\) .*,\\1,p')
readlink -f "$hipcc" "$llvm/clang" "$llvm/ld.lld" $libraries
find "$("$llvm/clang" --print-resource-dir)" "$include/hip" -type f
shift 3
while [ "$1" != -- ]; do
  find -L "$1" -type f
  shift
done
shift
for directory; do
  case $directory in
    */c++/*) find -L "$directory" -type f ;;
    *)
      # Not all of /usr/include: kernels do not include the headers of other packages.
      find "$directory" -maxdepth 1 -name '*.h' -type f
      for libc in bits gnu sys; do
        if [ -d "$directory/$libc" ]; then find "$directory/$libc" -type f; fi
      done
      ;;
  esac
done
"""

_DIGEST = "xargs -a identity.txt -d '\\n' sha256sum | cut -d' ' -f1 | sort | sha256sum | cut -d' ' -f1"

def _identity(rctx, hipcc, clang_dir, prefix, device_dirs, include_dirs):
    """Returns struct(digest, failure): the digest of compiler, linker, device libraries and headers, or a text."""
    arguments = ["identity", hipcc, clang_dir, prefix + "/include"] + device_dirs + ["--"] + include_dirs
    files = rctx.execute(["/bin/sh", "-c", _IDENTITY_FILES] + arguments)
    if files.return_code != 0:
        return struct(digest = "", failure = failed_command("a file of {} is missing:".format(prefix), "find", files))
    rctx.file("identity.txt", files.stdout)
    digest = rctx.execute(["/bin/sh", "-c", _DIGEST])
    if len(digest.stdout.strip()) != 64:
        return struct(digest = "", failure = failed_command("a file of {} cannot be read:".format(prefix), "sha256sum", digest))

    # An upgrade of any of these packages makes the toolchain another one.
    for file in files.stdout.splitlines():
        rctx.watch(file)
    return struct(digest = digest.stdout.strip(), failure = "")

def _rocm_version(rctx, prefix, hip_version):
    """ROCm's version as far as it is known: "7.2.4" where the installation says so, else "7.2"."""
    info = rctx.path((prefix or "/usr") + "/.info/version")
    if info.exists:
        return rctx.read(info).strip().split("-")[0]

    # Of hipcc's, the third number counts builds of HIP.
    return ".".join(hip_version.split(".")[:2])

def _detect(rctx, prefix):
    """Returns struct(rocm, failure) for a prefix: what detect_rocm returns, or why there is none."""
    hipcc = rctx.path(prefix + "/bin/hipcc")

    # Also where there is none yet: installing ROCm has to be noticed.
    rctx.watch(hipcc)
    if not hipcc.exists:
        return struct(failure = "{}: no such file".format(hipcc), rocm = None)
    command = _command(prefix, hipcc)
    answer = rctx.execute(command + ["--version"])
    version = parse_version(answer.stdout)
    if not version:
        return struct(failure = failed_command(hipcc, "--version", answer), rocm = None)
    verbose = rctx.execute(command + ["-v"] + _EMPTY_COMPILE)
    if verbose.return_code != 0:
        # Without -v, which prints pages before the error.
        return struct(failure = failed_command(hipcc, " ".join(_EMPTY_COMPILE), rctx.execute(command + _EMPTY_COMPILE)), rocm = None)
    device_dirs = parse_device_libraries(verbose.stderr)
    if not device_dirs:
        return struct(failure = "{}: it links no device libraries ({}...)".format(hipcc, _BITCODE), rocm = None)
    places = [prefix + "/lib/x86_64-linux-gnu", prefix + "/lib", prefix + "/lib64"]
    for directory in places:
        rctx.watch(directory + "/libamdhip64.so")
    library = [directory for directory in places if rctx.path(directory + "/libamdhip64.so").exists]
    if not library:
        return struct(failure = "libamdhip64.so: in none of {}".format(", ".join(places)), rocm = None)

    # Bazel compares them with the dependency file's paths, where no ".."
    # is left.
    include_dirs = [str(rctx.path(d)) for d in parse_include_dirs(verbose.stderr)]
    identity = _identity(rctx, hipcc, version.clang_dir, prefix, device_dirs, include_dirs)
    if identity.failure:
        return struct(failure = identity.failure, rocm = None)
    prefix = "" if prefix == "/usr" else prefix
    return struct(failure = "", rocm = struct(
        prefix = prefix,
        identity = identity.digest,
        tools = llvm_tools(str(hipcc), version.clang_dir),
        hip_version = version.hip_version,
        rocm_version = _rocm_version(rctx, prefix, version.hip_version),
        clang_version = version.clang_version,
        amd_clang = version.amd_clang,
        include_dirs = include_dirs,
        library_dir = library[0],
        flags = optional_flags(_probe(rctx, command), version.amd_clang),
    ))

def detect_rocm(rctx, path, rocm_path_env):
    """Looks for a ROCm that answers.

    Args:
      rctx: the repository context.
      path: the path of hip.toolkit, or "".
      rocm_path_env: the value of ROCM_PATH, or None.

    Returns:
      struct(failures, rocm). rocm: a struct (prefix, "" for a distribution's layout, tools, hip_version, rocm_version,
      clang_version, amd_clang, include_dirs, library_dir, flags, identity), or None where none answers. failures: why
      each prefix before it has none.
    """
    failures = []
    for prefix in candidate_prefixes(path, rocm_path_env):
        found = _detect(rctx, prefix)
        if found.rocm:
            return struct(failures = failures, rocm = found.rocm)
        failures.append(found.failure)
    return struct(failures = failures, rocm = None)
