// Identity of a compiler: one line that names compiler, HIP and C++ library.
#ifndef QOLA_RUNTIME_IDENTITY_H
#define QOLA_RUNTIME_IDENTITY_H

#include <string>
#include <string_view>

namespace qola_runtime {

/// The source that a compiler is given to be asked: what identity.hip says.
std::string identity_source();

/// The identity in that source after preprocessing, blanks made one and quotes dropped; empty where
/// there is none.
std::string identity_in(std::string_view preprocessed);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_IDENTITY_H
