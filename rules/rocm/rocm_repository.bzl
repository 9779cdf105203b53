"""The repository @qola_rocm: which ROCm compiles, and what versions it has."""

load("//rules/private:finding.bzl", "finding")
load("//rules/private/repositories:debian_packages.bzl", "read_pins")
load(":detect.bzl", "detect_rocm")

_HEADER = """# Written by @qola//rules/rocm:rocm_repository.bzl from {origin}.
# Make it again: bazel fetch --force --repo=@qola_rocm

"""

_PINNED = _HEADER + """load("@qola//rules/rocm:toolchain.bzl", "rocm_toolchain")

exports_files(["mirrors.json", "rocm.json"])

rocm_toolchain(
    name = "toolchain",
    cc_toolchain = "@qola_rocm_sdk//:sdk",
)

alias(
    name = "headers",
    actual = "@qola_rocm_headers//:headers",
    visibility = ["//visibility:public"],
)

alias(
    name = "hip_runtime",
    actual = "@qola_rocm_sdk//:sdk_hip_runtime",
    visibility = ["//visibility:public"],
)
"""

_LOCAL = _HEADER + """load("@qola//rules/rocm:toolchain.bzl", "rocm_cc_toolchain", "rocm_toolchain")
load("@rules_cc//cc:defs.bzl", "cc_library")

exports_files(["mirrors.json", "rocm.json"])

rocm_cc_toolchain(
    name = "local",
    identity = {identity},
    include_dirs = {include_dirs},
    library_dir = {library_dir},
    optional_flags = {flags},
    tools = {tools},
    rocm_path = {prefix},
)

rocm_toolchain(
    name = "toolchain",
    cc_toolchain = ":local",
)

# A ROCm of one's own has them beside HIP's, where the compiler looks.
cc_library(
    name = "headers",
    visibility = ["//visibility:public"],
)

cc_library(
    name = "hip_runtime",
    linkopts = {hip_linkopts},
    visibility = ["//visibility:public"],
)
"""

# What is known of a ROCm that is not there.
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
    """Which ROCm is meant.

    Args:
      environment: the value of QOLA_ROCM, "" or None where it is not set.
      path: the rocm() tag's path, or "".

    Returns:
      A struct with mode, "pinned" or "local", and path, the one place to look
      in, or ""; None where QOLA_ROCM has no meaning.
    """
    if environment == "pinned":
        return struct(mode = "pinned", path = "")
    if environment == "local":
        return struct(mode = "local", path = path)
    if environment and environment.startswith("/"):
        return struct(mode = "local", path = environment)
    if environment:
        return None
    return struct(mode = "local" if path else "pinned", path = path)

def _write(rctx, build, versions):
    rctx.file("BUILD.bazel", build, executable = False)
    rctx.file("rocm.json", json.encode(versions) + "\n", executable = False)

    # Apart from rocm.json, which is an input of actions: a mirror changes no key.
    rctx.file("mirrors.json", json.encode(rctx.attr.mirrors) + "\n", executable = False)

def _pinned(rctx):
    pins = read_pins(rctx, rctx.attr.lock)
    sdk = json.decode(rctx.read(pins.place + "/sdk.json" if pins.offered else rctx.attr.sdk))
    _write(rctx, _PINNED.format(origin = "third_party/rocm"), {
        "amd_clang": False,
        "clang_version": sdk["clang_version"],
        "hip_version": sdk["hip_version"],
        "origin": "offered" if pins.offered else "pinned",
        "rocm_version": sdk["rocm_version"],
    })

def _local(rctx, path):
    rocm = detect_rocm(rctx, path, rctx.getenv("ROCM_PATH"))
    if not rocm and path and path == rctx.attr.path:
        fail(finding(
            "ToolchainError: no ROCm at the path that was named",
            place = "rocm(path = \"{}\")".format(path),
            found = "no runnable {}/bin/hipcc with libamdhip64.so beside it".format(path),
            expected = "the prefix of a ROCm installation, such as /opt/rocm",
            fix = "correct the path, or leave it out to build with the ROCm that qola pins",
        ))
    if not rocm:
        rctx.symlink(Label("//rules/rocm:missing_rocm.sh"), "missing_rocm.sh")
        rocm = _NONE
    values = {
        name: repr(getattr(rocm, name))
        for name in ["flags", "identity", "include_dirs", "library_dir", "prefix", "tools"]
    }
    hip_linkopts = (["-L" + rocm.library_dir] if rocm.library_dir else []) + ["-lamdhip64"]
    _write(rctx, _LOCAL.format(hip_linkopts = repr(hip_linkopts), origin = "the ROCm on this machine", **values), {
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
            "ToolchainError: a ROCm that qola does not know",
            place = "QOLA_ROCM in the environment, or --repo_env=QOLA_ROCM",
            found = environment,
            expected = "pinned (the ROCm that qola fetches), local (that of this machine) or the absolute path of one",
            fix = "--repo_env=QOLA_ROCM=local",
        ))
    if chosen.mode == "pinned":
        _pinned(rctx)
    else:
        _local(rctx, chosen.path)

rocm_repository = repository_rule(
    implementation = _rocm_repository_impl,
    attrs = {
        "lock": attr.label(default = Label("//third_party/rocm:packages.lock"), doc = "The pinned packages."),
        "mirrors": attr.string_list(doc = "Debian mirrors that the pinned ROCm's packages are looked for on first."),
        "path": attr.string(doc = "Prefix of a local ROCm; empty: the pinned one, unless QOLA_ROCM says otherwise."),
        "sdk": attr.label(default = Label("//third_party/rocm:sdk.json"), doc = "What is known of the pinned compiler."),
    },
    configure = True,
    doc = """Chooses the ROCm: the pinned one (@qola_rocm_sdk), or a local one, which it probes.

QOLA_ROCM=pinned, local or a path goes before the rocm() tag. Defines
@qola_rocm//:toolchain, :headers (those of ROCm's libraries), :hip_runtime (what
a program links that calls HIP, whatever links it), rocm.json (its
versions) and mirrors.json (Debian mirrors, for @qola_rocm_sdk).
""",
    environ = ["QOLA_ROCM", "ROCM_PATH"],
)
