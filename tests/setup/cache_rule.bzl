"""The cache directory of an environment: one table, which tests of bazelw, rules, Python and the C++ runtime read."""

# An environment, and the directory. /passwd is the home in passwd.
CACHE_RULE = [
    ({}, "/passwd/.cache/qola"),
    ({"HOME": "/home"}, "/home/.cache/qola"),
    ({"HOME": ""}, "/passwd/.cache/qola"),
    ({"HOME": "relative"}, "/passwd/.cache/qola"),
    ({"HOME": "/home", "XDG_CACHE_HOME": "/x"}, "/x/qola"),
    ({"HOME": "/home", "XDG_CACHE_HOME": ""}, "/home/.cache/qola"),
    ({"HOME": "/home", "XDG_CACHE_HOME": "relative"}, "/home/.cache/qola"),
    ({"XDG_CACHE_HOME": "relative"}, "/passwd/.cache/qola"),
    ({"XDG_CACHE_HOME": "/x"}, "/x/qola"),
    ({"HOME": "/home", "QOLA_CACHE_HOME": "/q q", "XDG_CACHE_HOME": "/x"}, "/q q"),
    ({"HOME": "/home", "QOLA_CACHE_HOME": "relative", "XDG_CACHE_HOME": "/x"}, "/x/qola"),
    ({"HOME": "/home", "QOLA_CACHE_HOME": "~/q", "XDG_CACHE_HOME": ""}, "/home/.cache/qola"),
    ({"QOLA_CACHE_HOME": "", "XDG_CACHE_HOME": ""}, "/passwd/.cache/qola"),
]
