"""if_hip: values for builds with and without HIP."""

def if_hip(if_true, if_false = []):
    """Selects a value by the flag --@rules_hip//hip:enable, which is true by default.

    Without HIP, nothing of `if_true` is loaded, and no ROCm is fetched.

    Example:
        cc_library(
            name = "solver",
            srcs = ["solver.cpp"],
            defines = if_hip(["WITH_HIP"]),
            deps = if_hip([":kernels"]),
        )

    Args:
      if_true: the value with HIP.
      if_false: the value without HIP.

    Returns:
      The select.
    """
    return select({
        Label("//hip:enabled"): if_true,
        "//conditions:default": if_false,
    })
