"""Finds a local ROCm and asks its compiler what it is: the reading half of the ROCm repository."""

load("//rules/private:finding.bzl", "finding")
load(":flags.bzl", "AMD_CLANG_ONLY", "OPTIONAL_FLAGS", "llvm_tools")

# Where ROCm is looked for when neither the tag nor ROCM_PATH names a place: AMD's packages,
# then the layout of Debian's.
USUAL_PREFIXES = ["/opt/rocm", "/usr"]

def candidate_prefixes(path, rocm_path_env):
    """Returns the prefixes to try, in order: the rocm() tag's path or ROCM_PATH alone, or else the usual ones.

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
# libraries, the compiler's own headers and device libraries, the headers of HIP,
# C++ and C.
_IDENTITY_FILES = """
set -e
hipcc=$1 llvm=$2 include=$3
libraries=$(ldd "$llvm/clang" | sed -n 's,.*=> \\(/[^ ]*\\(LLVM\\|clang\\)[^ ]*\\) .*,\\1,p')
readlink -f "$hipcc" "$llvm/clang" "$llvm/ld.lld" $libraries
find "$("$llvm/clang" --print-resource-dir)" "$include/hip" -type f
if [ -d "$4/amdgcn" ]; then find -L "$4/amdgcn" -type f; fi
shift 4
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

def _identity(rctx, hipcc, clang_dir, prefix, include_dirs):
    """Digest of compiler, linker, device libraries and headers."""
    include = (prefix or "/usr") + "/include"
    arguments = ["identity", hipcc, clang_dir, include, prefix] + include_dirs
    files = rctx.execute(["/bin/sh", "-c", _IDENTITY_FILES] + arguments)
    rctx.file("identity.txt", files.stdout)
    digest = rctx.execute(["/bin/sh", "-c", _DIGEST])
    if files.return_code != 0 or len(digest.stdout.strip()) != 64:
        fail(finding(
            "ToolchainError: a ROCm that cannot be read",
            place = prefix or "/usr",
            found = files.stderr + digest.stderr,
            expected = "hipcc, clang, lld, device libraries and HIP headers",
            fix = "reinstall it",
        ))

    # An upgrade of any of these packages makes the toolchain another one.
    for file in files.stdout.splitlines():
        rctx.watch(file)
    return digest.stdout.strip()

def _rocm_version(rctx, prefix, hip_version):
    """ROCm's version as far as it is known: "7.2.4" where the installation says so, else "7.2"."""
    info = rctx.path((prefix or "/usr") + "/.info/version")
    if info.exists:
        return rctx.read(info).strip().split("-")[0]

    # Of hipcc's, the third number counts builds of HIP.
    return ".".join(hip_version.split(".")[:2])

def detect_rocm(rctx, path, rocm_path_env):
    """Looks for a ROCm that answers.

    Args:
      rctx: the repository context.
      path: the rocm() tag's path, or "".
      rocm_path_env: the value of ROCM_PATH, or None.

    Returns:
      A struct (prefix, "" for a distribution's layout, tools, hip_version, rocm_version, clang_version, amd_clang,
      include_dirs, library_dir, flags, identity), or None where none answers.
    """
    for prefix in candidate_prefixes(path, rocm_path_env):
        hipcc = rctx.path(prefix + "/bin/hipcc")

        # Also where there is none yet: installing ROCm has to be noticed.
        rctx.watch(hipcc)
        if not hipcc.exists:
            continue

        command = _command(prefix, hipcc)
        version = parse_version(rctx.execute(command + ["--version"]).stdout)
        if not version:
            continue
        verbose = rctx.execute(command + ["-v"] + _EMPTY_COMPILE)
        library = [
            d
            for d in [prefix + "/lib/x86_64-linux-gnu", prefix + "/lib", prefix + "/lib64"]
            if rctx.path(d + "/libamdhip64.so").exists
        ]
        if verbose.return_code != 0 or not library:
            continue
        prefix = "" if prefix == "/usr" else prefix

        # Bazel compares them with the dependency file's paths, where no ".."
        # is left.
        include_dirs = [str(rctx.path(d)) for d in parse_include_dirs(verbose.stderr)]
        return struct(
            prefix = prefix,
            identity = _identity(rctx, hipcc, version.clang_dir, prefix, include_dirs),
            tools = llvm_tools(str(hipcc), version.clang_dir),
            hip_version = version.hip_version,
            rocm_version = _rocm_version(rctx, prefix, version.hip_version),
            clang_version = version.clang_version,
            amd_clang = version.amd_clang,
            include_dirs = include_dirs,
            library_dir = library[0],
            flags = optional_flags(_probe(rctx, command), version.amd_clang),
        )
    return None
