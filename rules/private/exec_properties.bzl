"""EXEC_PROPERTIES: what a remote worker has to be to run a kernel's actions."""

# Names and values of the Remote Execution API's platform lexicon. On targets,
# and not in an option: they are part of every action's key, with remote
# execution and without, so that both share one cache.
EXEC_PROPERTIES = {
    "ISA": "x86-64",
    "OSFamily": "linux",
}
