"""The transitions under which kernels, and users' HIP, are built, whatever compiles the build around them."""

# A kernel's bytes must depend on its manifest and toolchain alone. Each of
# these options would otherwise reach its command line, and with it the cache
# key: one consumer's --copt=-g would recompile 540 kernels for everybody.
_NORMALISED = {
    "//command_line_option:action_env": [],
    "//command_line_option:collect_code_coverage": False,
    "//command_line_option:compilation_mode": "opt",
    "//command_line_option:conlyopt": [],
    "//command_line_option:copt": [],
    "//command_line_option:cpu": "k8",
    "//command_line_option:cxxopt": [],
    "//command_line_option:features": [],
    "//command_line_option:force_pic": True,
    "//command_line_option:linkopt": [],
    "//command_line_option:per_file_copt": [],
    "//command_line_option:strip": "never",
}

# A host's C++ toolchain fits the platform as well, and would compile kernels
# wherever it is registered first. Label() makes names right in a consumer too.
_ROCM = {
    "//command_line_option:extra_toolchains": [str(Label("//rules/rocm:toolchain"))],
    "//command_line_option:platforms": [str(Label("//rules/rocm:linux_x86_64"))],
}

def _kernel_transition_impl(_settings, _attr):
    return _NORMALISED | _ROCM

# Of each rule that has an attribute under it.
TRANSITION_ATTRS = {
    "_allowlist_function_transition": attr.label(
        default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
    ),
}

kernel_transition = transition(
    implementation = _kernel_transition_impl,
    inputs = [],
    outputs = _NORMALISED.keys() + _ROCM.keys(),
)

def _hip_transition_impl(_settings, _attr):
    return _ROCM

# A user's own code: options such as --copt and -c are meant for it.
hip_transition = transition(
    implementation = _hip_transition_impl,
    inputs = [],
    outputs = _ROCM.keys(),
)
