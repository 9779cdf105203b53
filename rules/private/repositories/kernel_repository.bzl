"""kernel_repository: the kernel instances of every manifest that shares an AITER tree."""

load(":host_python.bzl", "run_qola")

def _kernel_repository_impl(rctx):
    plans = []
    for plan in rctx.attr.plans:
        path = rctx.path(plan)
        rctx.watch(path)

        # A plan that could not be made has its error in place of kernels.
        if "error" not in json.decode(rctx.read(path)):
            plans.append(path)
    run_qola(rctx, "qola.repository", {
        "aiter-repository": rctx.attr.aiter_name,
        "output": ".",
        "plan": plans,
    }, command = ["kernels"])

kernel_repository = repository_rule(
    implementation = _kernel_repository_impl,
    attrs = {
        "aiter_name": attr.string(doc = "Repository name of the source tree.", mandatory = True),
        "plans": attr.label_list(doc = "plan.json of each manifest.", mandatory = True),
    },
    doc = """One cc_library per kernel instance, over all manifests of an AITER tree.

A kernel that two manifests plan with the same flags is one target here, with
one cache entry. One package per flag configuration.
""",
    environ = ["QOLA_PYTHON"],
)
