// Identity of a compiler: one line that names compiler, HIP and C++ library.
#ifndef QOLA_RUNTIME_IDENTITY_H
#define QOLA_RUNTIME_IDENTITY_H

#include <string>
#include <string_view>

namespace qola_runtime {

/// Returns the source, identity.hip, that a compiler preprocesses to report its identity.
std::string identity_source();

/// Finds the identity in the preprocessed source, with single blanks and without quotes; empty if
/// missing.
std::string identity_in(std::string_view preprocessed);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_IDENTITY_H
