// Finds the installed compiler and its identity.
#ifndef QOLA_RUNTIME_COMPILER_H
#define QOLA_RUNTIME_COMPILER_H

#include "settings.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qola_runtime {

/// A compiler with its identity.
struct Compiler
{
    std::vector<std::string> command; ///< program and first arguments
    std::string identity;
    std::string prefix; ///< of ROCm, derived from the program's path; empty if unknown
};

/// Finds the compiler at the first request.
class Compilers
{
    public:
    explicit Compilers(const Settings& settings) : settings_(settings) {}

    /// Returns the compiler, null if there is none. Throws Problem if it does not report an identity.
    const Compiler* find();

    /// Returns the searched places, for a message.
    std::string places() const;

    private:
    const Settings& settings_;
    std::mutex mutex_;
    bool asked_ = false;
    std::unique_ptr<Compiler> found_;
    std::string problem_;
};

/// Returns a compiler's environment with a directory for temporary files.
std::vector<std::string> compiler_environment(const std::string& temporary);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_COMPILER_H
