"""The repositories @rocm (the choice of ROCm), @rocm_sdk (the pinned compiler) and @rocm_headers."""

load("//lib:finding.bzl", "finding")
load("//repositories:debian_packages.bzl", "fetch_packages", "read_pins")
load("//repositories:host_python.bzl", "host_python")
load("//repositories:metadata.bzl", "reproducible")
load("//repositories:progress.bzl", "report_step")
load(":detect.bzl", "detect_rocm")
load(":libraries.bzl", "HEADER_LIBRARIES", "OTHER_LIBRARIES")

_HEADER = """# Written by @rules_hip//rocm:repositories.bzl from {origin}.
# Make it again: bazel fetch --force --repo=@@{repository}

"""

_PINNED = _HEADER + """load("@rules_hip//rocm:libraries.bzl", "not_pinned")
load("@rules_cc//cc:defs.bzl", "cc_library")

exports_files(["rocm.json"])

alias(
    name = "cc_toolchain",
    actual = "@rocm_sdk//:sdk",
    visibility = ["//visibility:public"],
)

alias(
    name = "headers",
    actual = "@rocm_headers//:headers",
    visibility = ["//visibility:public"],
)

alias(
    name = "hip_library",
    actual = "@rocm_sdk//:sdk/rocm/lib/libamdhip64.so",
    visibility = ["//visibility:public"],
)

alias(
    name = "hip_runtime",
    actual = select({{
        "@rules_hip//rocm:own_hip_soname": "@rocm_sdk//:sdk_hip_runtime",
        "//conditions:default": "@rules_hip//rocm:renamed_hip_runtime",
    }}),
    visibility = ["//visibility:public"],
)

# HIP for C++ of any compiler: headers, and the runtime to link.
cc_library(
    name = "hip",
    defines = ["__HIP_PLATFORM_AMD__=1"],
    visibility = ["//visibility:public"],
    deps = [
        ":hip_runtime",
        "@rocm_sdk//:sdk_hip_headers",
    ],
)

alias(
    name = "llvm_tools",
    actual = "@rocm_sdk//:sdk_tools",
    visibility = ["//visibility:public"],
)

[
    alias(
        name = name,
        actual = "@rocm_headers//:" + name,
        visibility = ["//visibility:public"],
    )
    for name in {header_libraries}
]

[
    not_pinned(
        name = name,
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
    for name in {other_libraries}
]
"""

_LOCAL = _HEADER + """load("@rules_hip//rocm:toolchain.bzl", "rocm_cc_toolchain")
load("@rules_cc//cc:defs.bzl", "cc_library")

exports_files(["rocm.json"])

rocm_cc_toolchain(
    name = "cc_toolchain",
    identity = {identity},
    include_dirs = {include_dirs},
    library_dir = {library_dir},
    optional_flags = {flags},
    tools = {tools},
    rocm_path = {prefix},
)

# A local ROCm has them next to HIP's headers, where the compiler searches.
cc_library(
    name = "headers",
    visibility = ["//visibility:public"],
)

cc_library(
    name = "linked_hip_runtime",
    linkopts = {hip_linkopts},
)

filegroup(
    name = "hip_library",
    srcs = glob(["lib/libamdhip64.so"], allow_empty = True),
    visibility = ["//visibility:public"],
)

alias(
    name = "hip_runtime",
    actual = select({{
        "@rules_hip//rocm:own_hip_soname": ":linked_hip_runtime",
        "//conditions:default": "@rules_hip//rocm:renamed_hip_runtime",
    }}),
    visibility = ["//visibility:public"],
)

# HIP for C++ of any compiler: headers, and the runtime to link.
cc_library(
    name = "hip",
    hdrs = glob(["include/**"], allow_empty = True),
    defines = ["__HIP_PLATFORM_AMD__=1"],
    includes = ["include"],
    visibility = ["//visibility:public"],
    deps = [":hip_runtime"],
)

# llvm-nm and others are outside of Bazel's inputs, as is the compiler.
filegroup(
    name = "llvm_tools",
    visibility = ["//visibility:public"],
)

# The compiler finds their headers.
[
    cc_library(
        name = name,
        linkopts = linkopts,
        visibility = ["//visibility:public"],
    )
    for name, linkopts in {libraries}.items()
]
"""

# Stands in for a missing ROCm.
_NONE = struct(
    amd_clang = False,
    clang_version = "",
    flags = [],
    hip_version = "",
    identity = "",
    include_dirs = [],
    library_dir = "",
    prefix = "",
    rocm_version = "",
    tools = {tool: "missing_rocm.sh" for tool in ["ar", "gcc", "ld", "nm", "objcopy", "objdump", "strip"]},
)

def choice(environment, path):
    """Resolves the choice of ROCm.

    Args:
      environment: the value of QOLA_ROCM, "" or None where it is not set.
      path: the path of hip.toolkit, or "".

    Returns:
      A struct with mode, "pinned" or "local", path, the only prefix to
      search, or "", and place, the setting that decides; None for an invalid QOLA_ROCM.
    """
    variable = "QOLA_ROCM={}".format(environment)
    tag = "MODULE.bazel of the root module: hip.toolkit(path = \"{}\")".format(path)
    if environment == "pinned":
        return struct(mode = "pinned", path = "", place = variable)
    if environment == "local":
        return struct(mode = "local", path = path, place = tag if path else variable)
    if environment and environment.startswith("/"):
        return struct(mode = "local", path = environment, place = variable)
    if environment:
        return None
    return struct(mode = "local" if path else "pinned", path = path, place = tag)

def _write(rctx, build, versions):
    rctx.file("BUILD.bazel", build, executable = False)
    rctx.file("rocm.json", json.encode(versions) + "\n", executable = False)

def _pinned(rctx):
    pins = read_pins(rctx, rctx.attr.lock)
    sdk = json.decode(rctx.read(pins.place + "/sdk.json" if pins.offered else rctx.attr.sdk))
    build = _PINNED.format(
        header_libraries = repr(sorted(HEADER_LIBRARIES)),
        origin = "third_party/rocm",
        other_libraries = repr(sorted(OTHER_LIBRARIES)),
        repository = rctx.name,
    )
    _write(rctx, build, {
        "amd_clang": False,
        "clang_version": sdk["clang_version"],
        "hip_version": sdk["hip_version"],
        "origin": "offered" if pins.offered else "pinned",
        "rocm_version": sdk["rocm_version"],
    })

def missing_rocm(place, failures, repository):
    """Returns the script in the place of each tool: only an action that needs the compiler fails, and says why.

    Args:
      place: the setting that selects a ROCm.
      failures: why no prefix has one, as of detect_rocm.
      repository: canonical name of @rocm.
    """
    message = finding(
        "ToolchainError: no ROCm compiler on this machine",
        place = place,
        found = "\n".join(failures),
        expected = "a prefix of ROCm 6.2 or newer with hipcc, clang, device libraries, HIP's headers and libamdhip64.so",
        fix = "build with the ROCm that qola pins: --repo_env=QOLA_ROCM=pinned\n" +
              "or name the prefix of another: --repo_env=QOLA_ROCM=/opt/rocm\n" +
              "or correct this one, then: bazel fetch --force --repo=@@" + repository,
    )

    # Further lines of a message begin with blanks: none of them ends the document.
    return "#!/bin/sh\ncat >&2 <<'EOF'{}\nEOF\nexit 1\n".format(message)

def _local(rctx, chosen):
    detected = detect_rocm(rctx, chosen.path, rctx.getenv("ROCM_PATH"))
    rocm = detected.rocm
    if not rocm:
        rctx.file("missing_rocm.sh", missing_rocm(chosen.place, detected.failures, rctx.name), executable = True)
        rocm = _NONE
    headers = rctx.path((rocm.prefix or "/usr") + "/include/hip")
    if rocm.identity and headers.exists:
        rctx.symlink(headers, "include/hip")
    if rocm.library_dir:
        rctx.symlink(rocm.library_dir + "/libamdhip64.so", "lib/libamdhip64.so")
    values = {
        name: repr(getattr(rocm, name))
        for name in ["flags", "identity", "include_dirs", "library_dir", "prefix", "tools"]
    }
    directory = ["-L" + rocm.library_dir] if rocm.library_dir else []
    linked = OTHER_LIBRARIES | {"hiprand": "hiprand", "rocrand": "rocrand"}
    libraries = {name: [] for name in HEADER_LIBRARIES} | {
        name: directory + ["-l" + library]
        for name, library in linked.items()
    }
    build = _LOCAL.format(
        hip_linkopts = repr(directory + ["-lamdhip64"]),
        libraries = repr(libraries),
        origin = "the ROCm on this machine",
        repository = rctx.name,
        **values
    )
    _write(rctx, build, {
        "amd_clang": rocm.amd_clang,
        "clang_version": rocm.clang_version,
        "hip_version": rocm.hip_version,
        "identity": rocm.identity,
        "origin": "local",
        "rocm_version": rocm.rocm_version,
    })

def _rocm_repository_impl(rctx):
    environment = rctx.getenv("QOLA_ROCM")
    chosen = choice(environment, rctx.attr.path)
    if not chosen:
        fail(finding(
            "ToolchainError: an invalid choice of ROCm",
            place = "QOLA_ROCM in the environment, or --repo_env=QOLA_ROCM",
            found = environment,
            expected = "pinned (the ROCm that qola fetches), local (that of this machine) or the absolute path of one",
            fix = "--repo_env=QOLA_ROCM=local",
        ))
    if chosen.mode == "pinned":
        _pinned(rctx)
    else:
        _local(rctx, chosen)

rocm_repository = repository_rule(
    implementation = _rocm_repository_impl,
    attrs = {
        "lock": attr.label(default = Label("//third_party/rocm:packages.lock"), doc = "The pinned packages."),
        "path": attr.string(doc = "Prefix of a local ROCm; empty: the pinned ROCm, unless QOLA_ROCM is set."),
        "sdk": attr.label(default = Label("//third_party/rocm:sdk.json"), doc = "Versions and optional flags of the pinned compiler."),
    },
    configure = True,
    doc = """Chooses the ROCm: the pinned one (@rocm_sdk), or a local one, which it probes.

QOLA_ROCM=pinned, local or a path takes precedence over hip.toolkit. Defines
@rocm//:cc_toolchain, :headers (of ROCm's libraries) and a label for each of
them (:rocprim, ...), :hip_runtime (for any program that calls HIP, whatever
links it), :hip (this with HIP's headers), :llvm_tools and rocm.json (versions).
""",
    environ = ["QOLA_ROCM", "ROCM_PATH"],
)

_SDK_BUILD = """# Written by @rules_hip//rocm:repositories.bzl from the pinned ROCm packages.
# Make it again: bazel fetch --force --repo=@@{repository}

load("@rules_hip//rocm:toolchain.bzl", "rocm_sdk")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["sdk/bin/*", "sdk/rocm/lib/*"]))

rocm_sdk(
    name = "sdk",
    optional_flags = {flags},
)
"""

def _rocm_sdk_repository_impl(rctx):
    pins = read_pins(rctx, rctx.attr.lock)
    sdk = json.decode(rctx.read(pins.place + "/sdk.json" if pins.offered else rctx.attr.sdk))
    rctx.watch(rctx.attr.layout)
    python = host_python(rctx)
    fetch_packages(
        rctx,
        lock = rctx.attr.lock,
        mirrors = rctx.attr.mirrors,
        mirrors_line = "hip.toolkit(mirrors = [\"http://HOST/debian\"])",
    )
    report_step(rctx, "laying out the ROCm compiler")
    result = rctx.execute([python, "-B", "-I", rctx.path(rctx.attr.layout), ".", "sdk"])
    if result.return_code != 0:
        fail(finding(
            "ToolchainError: the pinned ROCm packages do not match the layout",
            place = rctx.attr.layout,
            found = (result.stderr or result.stdout).strip(),
            expected = "every file the layout names in a package of {}".format(rctx.attr.lock),
            fix = "correct the layout or the lock, they belong together",
        ))
    for group in ["compiler", "sysroot"]:
        rctx.delete(group)
    rctx.file("BUILD.bazel", _SDK_BUILD.format(flags = repr(sdk["optional_flags"]), repository = rctx.name), executable = False)

    # Offered pins are this machine's.
    return None if pins.offered else reproducible(rctx)

rocm_sdk_repository = repository_rule(
    implementation = _rocm_sdk_repository_impl,
    attrs = {
        "layout": attr.label(default = Label("//rocm:lay_out_sdk.py"), doc = "The script that arranges the packages' files."),
        "lock": attr.label(default = Label("//third_party/rocm:packages.lock"), doc = "The pinned packages."),
        "mirrors": attr.string_list(doc = "Debian mirrors to ask first."),
        "sdk": attr.label(default = Label("//third_party/rocm:sdk.json"), doc = "Versions and optional flags of the pinned compiler."),
    },
    doc = "The pinned ROCm, fetched when the first action needs a compiler.",
    environ = ["QOLA_PYTHON"],
)

_HEADERS_BUILD = """# Written by @rules_hip//rocm:repositories.bzl from the pinned packages.
# Make it again: bazel fetch --force --repo=@@{repository}

load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["headers/usr/include/**"]),
    includes = ["headers/usr/include"],
    visibility = ["//visibility:public"],
)

# Each only with its own headers, which are inputs of the compiles that include them.
[
    cc_library(
        name = name,
        hdrs = glob(["headers/usr/include/{{}}/**".format(directory)]),
        includes = ["headers/usr/include"],
        visibility = ["//visibility:public"],
        deps = deps,
    )
    for name, (directory, deps) in {libraries}.items()
]
"""

def _rocm_headers_repository_impl(rctx):
    pins = fetch_packages(
        rctx,
        lock = rctx.attr.lock,
        mirrors = rctx.attr.mirrors,
        mirrors_line = "hip.toolkit(mirrors = [\"http://HOST/debian\"])",
    )
    libraries = {name: (library.directory, [":" + dep for dep in library.deps]) for name, library in HEADER_LIBRARIES.items()}
    rctx.file("BUILD.bazel", _HEADERS_BUILD.format(libraries = repr(libraries), repository = rctx.name), executable = False)
    return None if pins.offered else reproducible(rctx)

rocm_headers_repository = repository_rule(
    implementation = _rocm_headers_repository_impl,
    attrs = {
        "lock": attr.label(default = Label("//third_party/rocm_headers:packages.lock"), doc = "The pinned packages."),
        "mirrors": attr.string_list(doc = "Debian mirrors to ask first."),
    },
    doc = """rocPRIM, rocThrust, hipCUB, hipRAND, and what PyTorch's headers for ROCm include.

Fetched when the pinned ROCm compiles the first module that may include them.""",
)
