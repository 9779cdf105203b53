"""How libraries of a manifest are linked, and how programs link them."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_hip//lib:cc.bzl", "cc_features")

# Symbols that systems of manylinux_2_28 lack: for a library, and for objects
# that are linked elsewhere.
OLDER_SYSTEMS = Label("//runtime/older_systems")

OLDER_SYSTEMS_NAMES = Label("//runtime/older_systems:names")

# A linker script for -Wl,-T; without it each exception ends the process, see
# the file.
LARGE_CODE = Label("//rules/private:large_code.ld")

# Where pip installs HIP's runtime, seen from a library in a package of site-packages or in a directory of one:
# _rocm_sdk_core of AMD's wheel rocm-sdk-core, and rocm. A directory that does not exist costs nothing. JAX's wheels for
# ROCm have the same entries. LD_LIBRARY_PATH comes before them, /etc/ld.so.cache after them. Only wheels show them to the
# dynamic linker: strip.sh hides them, since the directory above another library may be one in which others can write.
RUNPATH_FLAGS = [
    "-Wl,-rpath,$ORIGIN/{}{}/lib".format(up, package)
    for package in ["_rocm_sdk_core", "rocm"]
    for up in ["../", "../../"]
]

# Link flags of a kernel library, whether Bazel links it or later a user's
# machine. HIP's runtime comes last, and LARGE_CODE by -Wl,-T.
KERNEL_LINK_FLAGS = [
    "-shared",
    # The driver's own choice of HIP's runtime differs between hipcc and clang++.
    "-no-hip-rt",
    "-fuse-ld=lld",
    "-Wl,--gc-sections",
    "-Wl,-z,defs",
    # Kernels of another AITER in the process must not replace this library's.
    "-Wl,-Bsymbolic",
]

# For rules that call linking_context.
LINK_ATTRS = {
    "_hip_runtime": attr.label(default = "@rocm//:hip_runtime", providers = [CcInfo]),
}

def linking_context(ctx, hip = None, **library):
    """Returns the LinkingContext by which a program links one library of a manifest.

    Args:
      ctx: the rule context.
      hip: CcInfo of HIP's runtime, which the library and inline functions of the public headers
        call. None links the machine's libamdhip64, without fetching a ROCm.
      **library: the file, as an argument of create_library_to_link.
    """
    found = cc_features(ctx)
    own = cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([cc_common.create_library_to_link(
                actions = ctx.actions,
                cc_toolchain = found.toolchain,
                feature_configuration = found.features,
                **library
            )]),
            user_link_flags = depset([] if hip else ["-lamdhip64"]),
        ),
    ]))
    return cc_common.merge_linking_contexts(linking_contexts = [own] + ([hip.linking_context] if hip else []))
