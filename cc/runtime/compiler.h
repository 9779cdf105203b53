// The compiler that is at hand: which, and what it calls itself.
#ifndef QOLA_RUNTIME_COMPILER_H
#define QOLA_RUNTIME_COMPILER_H

#include "settings.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qola_runtime {

/// A compiler that was asked for its identity.
struct Compiler
{
    std::vector<std::string> command; ///< program and first arguments
    std::string identity;
    std::string prefix; ///< of ROCm, as far as the program's path tells; else empty
};

/// Finds the compiler when it is first asked for, which takes a moment.
class Compilers
{
    public:
    explicit Compilers(const Settings& settings) : settings_(settings) {}

    /// The compiler, null where there is none. Throws Problem where it cannot be asked.
    const Compiler* find();

    /// Where it was looked for, for a message.
    std::string places() const;

    private:
    const Settings& settings_;
    std::mutex mutex_;
    bool asked_ = false;
    std::unique_ptr<Compiler> found_;
    std::string problem_;
};

/// Environment of a compiler whose temporary files go into a directory.
std::vector<std::string> compiler_environment(const std::string& temporary);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_COMPILER_H
