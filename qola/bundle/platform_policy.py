"""Compares what a bundle's files need with what the platform tag of a wheel promises.

The tags are PEP 600's. What a system of each tag has (versions of glibc, libstdc++ and libgcc, and
which libraries at all) is auditwheel's table, which the Python packaging project keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies

from qola.bundle.elf_versions import ElfNeeds, demangle, highest
from qola.errors import BundleError, Finding

#: The tag that promises nothing about the system's libraries.
NO_POLICY = "linux_x86_64"

_LOADER = re.compile(r"ld-linux")


def check_platform(
    needs: Sequence[ElfNeeds], platform: str, external_libraries: Iterable[str]
) -> None:
    """Check files against the policy of a platform tag.

    Args:
        platform: tag of the wheel: linux_x86_64, which promises nothing, or manylinux_2_28_x86_64.
        external_libraries: libraries that no system has to have by the policy, and that users of
            the wheel bring on purpose, such as libamdhip64.so.7.

    Raises:
        BundleError: there is no such policy, a file needs what the policy does not promise, or an
            external library is declared that no file needs.
    """
    external = set(external_libraries)
    policies = sorted(WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64))
    policy = next((p for p in policies if platform in (p.name, *p.aliases)), None)
    if policy is None:
        raise BundleError(
            Finding(
                "platform",
                f'"{platform}"',
                f"one of {', '.join(p.name for p in reversed(policies))}",
            )
        )
    findings = [
        Finding(
            "external_libraries",
            f'"{name}"',
            "libraries that a file of the bundle needs",
            f'remove "{name}" from external_libraries',
        )
        for name in sorted(external - {name for one in needs for name in one.libraries})
    ]
    if policy.name != NO_POLICY:
        findings += _violations(needs, policy, external, _fitting(needs, policies))
    if findings:
        raise BundleError(findings)


def _fitting(needs: Sequence[ElfNeeds], policies: Iterable[Policy]) -> str:
    """Return the tag of the lowest policy whose versions and symbols suffice."""
    # Sorted by how recent a system has to be, from linux_x86_64 (any) to the oldest system.
    fitting: list[str] = [
        policy.name
        for policy in policies
        if not any(_missing(one, policy) or _forbidden(one, policy) for one in needs)
    ]
    return fitting[-1]


def _violations(
    needs: Iterable[ElfNeeds], policy: Policy, external: set[str], fitting: str
) -> list[Finding]:
    needs = tuple(needs)
    own = {one.path.rsplit("/", 1)[-1] for one in needs}
    fix = f'platform = "{fitting}", the oldest systems that these files load on'
    findings = []
    for one in needs:
        for version in highest(_missing(one, policy)):
            kind = version.partition("_")[0]
            symbols = one.symbols.get(version, ())
            found = f"{version} of {one.versions[version]}"
            if symbols:
                more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
                found += f", for {demangle(symbols[0])}{more}"
            allowed = highest(f"{kind}_{number}" for number in policy.symbol_versions[kind])
            promise = f"at most {', '.join(allowed)}" if allowed else f"no {kind}"
            findings.append(Finding(one.path, found, f"{promise}: {policy.name}", fix))
        for library, names in sorted(_forbidden(one, policy).items()):
            found = f"{', '.join(sorted(names))} of {library}"
            findings.append(Finding(one.path, found, f"none of these: {policy.name}", fix))
        for library in one.libraries:
            if library in policy.whitelist | external | own or _LOADER.match(library):
                continue
            findings.append(
                Finding(
                    one.path,
                    f"needs {library}, which no system of {policy.name} has to have",
                    "libraries of the policy, of the bundle, or declared as the users' own",
                    f'external_libraries = ["{library}"], if whoever installs the wheel has it',
                )
            )
    return findings


def _missing(one: ElfNeeds, policy: Policy) -> set[str]:
    """Return the versions that a system of the policy need not have."""
    missing = set()
    for version in one.versions:
        kind, _, number = version.partition("_")
        # Kinds that a policy does not know, such as hip, belong to external libraries.
        if kind in policy.symbol_versions and number not in policy.symbol_versions[kind]:
            missing.add(version)
    return missing


def _forbidden(one: ElfNeeds, policy: Policy) -> dict[str, frozenset[str]]:
    """Return symbols that some systems of the policy lack, by library."""
    return {
        library: found
        for library, symbols in policy.blacklist.items()
        if library in one.libraries and (found := symbols & one.undefined)
    }
