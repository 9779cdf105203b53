"""What tests ask of actions."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

def action_of(env, mnemonic, output_part = ""):
    """Returns the one action of the target under test that is asked for.

    Args:
      env: of the test.
      mnemonic: the action's.
      output_part: a part of the path of one of its outputs.
    """
    found = [
        action
        for action in analysistest.target_actions(env)
        if action.mnemonic == mnemonic and any([output_part in f.short_path for f in action.outputs.to_list()])
    ]
    asserts.equals(env, 1, len(found), "actions {} for {}".format(mnemonic, output_part))
    return found[0]

def has_all(env, items, wanted):
    """Asserts that each of some items is there.

    Args:
      env: of the test.
      items: a command line, or paths.
      wanted: what is to be among them.
    """
    for item in wanted:
        asserts.true(env, item in items, "{} is missing in {}".format(item, " ".join(items)))

def archs_of(argv):
    """Returns the flags of a command line that name archs.

    Args:
      argv: the command line.
    """
    return [flag for flag in argv if flag.startswith("--offload-arch")]

def objects_of(action):
    """Returns the names of the object files that an action reads.

    Args:
      action: the action.
    """
    return [f.basename for f in action.inputs.to_list() if f.basename.endswith(".o")]
