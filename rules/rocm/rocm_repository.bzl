"""The repository @qola_rocm: the local ROCm as a C++ toolchain, or one that explains its absence."""

load(":detect.bzl", "detect_rocm")

_BUILD = '''# Written by @qola//rules/rocm:rocm_repository.bzl from the ROCm on this machine.
# Make it again: bazel fetch --force --repo=@qola_rocm

load("@qola//rules/rocm:toolchain.bzl", "rocm_toolchain")

exports_files(["rocm.json"])

rocm_toolchain(
    name = "toolchain",
    identity = {identity},
    include_dirs = {include_dirs},
    library_dir = {library_dir},
    optional_flags = {flags},
    tools = {tools},
    rocm_path = {prefix},
)
'''

def _tools(rocm):
    llvm = rocm.clang_dir
    return {
        "ar": llvm + "/llvm-ar",
        "gcc": rocm.hipcc,
        "ld": llvm + "/ld.lld",
        "nm": llvm + "/llvm-nm",
        "objcopy": llvm + "/llvm-objcopy",
        "objdump": llvm + "/llvm-objdump",
        "strip": llvm + "/llvm-strip",
    }

def _rocm_repository_impl(rctx):
    path = rctx.attr.path
    rocm = detect_rocm(rctx, path, rctx.getenv("ROCM_PATH"))
    if not rocm and path:
        fail("""
qola: ToolchainError: no ROCm at the path that was named
  place:    rocm(path = "{path}")
  found:    no runnable {path}/bin/hipcc with libamdhip64.so beside it
  expected: the prefix of a ROCm installation, such as /opt/rocm
  fix:      correct the path, or leave the tag out to have /opt/rocm and /usr searched""".format(path = path))
    if rocm:
        values = dict(
            amd_clang = rocm.amd_clang,
            clang_version = rocm.clang_version,
            flags = rocm.flags,
            hip_version = rocm.hip_version,
            identity = rocm.identity,
            include_dirs = rocm.include_dirs,
            library_dir = rocm.library_dir,
            prefix = rocm.prefix,
            tools = _tools(rocm),
        )
    else:
        rctx.symlink(Label("//rules/rocm:missing_rocm.sh"), "missing_rocm.sh")
        values = dict(
            amd_clang = False,
            clang_version = "",
            flags = [],
            hip_version = "",
            identity = "",
            include_dirs = [],
            library_dir = "",
            prefix = "",
            tools = {t: "missing_rocm.sh" for t in ["ar", "gcc", "ld", "nm", "objcopy", "objdump", "strip"]},
        )
    rctx.file("BUILD.bazel", _BUILD.format(**{k: repr(v) for k, v in values.items()}), executable = False)
    rctx.file("rocm.json", json.encode({
        "amd_clang": values["amd_clang"],
        "clang_version": values["clang_version"],
        "hip_version": values["hip_version"],
        "identity": values["identity"],
        "library_dir": values["library_dir"],
        "llvm_bin": rocm.clang_dir if rocm else "",
        "prefix": values["prefix"],
        "rocm_version": rocm.rocm_version if rocm else "",
    }) + "\n", executable = False)

rocm_repository = repository_rule(
    implementation = _rocm_repository_impl,
    attrs = {
        "path": attr.string(doc = "Prefix of a ROCm installation; empty: ROCM_PATH, or without it /opt/rocm and /usr."),
    },
    configure = True,
    doc = "Detects ROCm and probes its compiler once. Defines @qola_rocm//:toolchain and rocm.json (versions and places).",
    environ = ["ROCM_PATH"],
)
