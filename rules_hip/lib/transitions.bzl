"""The transition under which kernels are compiled, whatever toolchain the build uses."""

# A kernel's bytes depend only on its manifest and toolchain. Each of these
# options would otherwise be part of its command line, and so of the cache key:
# --copt=-g in one consumer would recompile 540 kernels for everybody.
_NORMALISED = {
    "//command_line_option:action_env": [],
    "//command_line_option:collect_code_coverage": False,
    "//command_line_option:compilation_mode": "opt",
    "//command_line_option:conlyopt": [],
    "//command_line_option:copt": [],
    "//command_line_option:cxxopt": [],
    "//command_line_option:features": [],
    "//command_line_option:force_pic": True,
    "//command_line_option:linkopt": [],
    "//command_line_option:per_file_copt": [],
    "//command_line_option:strip": "never",
}

# A host's C++ toolchain also fits the platform, and would compile kernels
# wherever it is registered first. Label() resolves the names in a consumer too.
_ROCM = {
    "//command_line_option:extra_toolchains": [str(Label("//rocm:toolchain"))],
    "//command_line_option:platforms": [str(Label("//rocm:linux_x86_64"))],
}

# For rules that have an attribute with the transition.
TRANSITION_ATTRS = {
    "_allowlist_function_transition": attr.label(
        default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
    ),
}

kernel_transition = transition(
    implementation = lambda _settings, _attr: _NORMALISED | _ROCM,
    inputs = [],
    outputs = _NORMALISED.keys() + _ROCM.keys(),
)
