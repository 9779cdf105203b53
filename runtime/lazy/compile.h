// Finds the installed compiler and its identity, and compiles kernels with it.
#pragma once

#include "index.h"
#include "text.h"
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

    /// Returns the installed compiler, or null. Throws Problem if it does not report an identity.
    const Compiler* find();

    private:
    const Settings& settings_;
    std::mutex mutex_;
    bool asked_ = false;
    std::unique_ptr<Compiler> found_;
    std::string problem_;
};

/// A failed compile. `place` describes a fault of its directory, so that another one can be tried;
/// empty for other faults.
class CompileError : public Problem
{
    public:
    CompileError(const std::string& what, const std::string& place) : Problem(what), place(place) {}
    const std::string place;
};

/// Parameters of a compile.
struct Compile
{
    const Compiler& compiler;
    const std::string& root; ///< of the sources
    const Index& index;
    const Kernel& kernel;
    const std::string& hip; ///< path of HIP's runtime; if empty, the compiler's `prefix`/lib is searched
    const Settings& settings;
};

/// Compiles a kernel from copies of its sources in a directory, and returns the library's bytes. Throws
/// CompileError with the compiler's last output, or Problem if a source differs from the index.
std::string compile(const Compile& compile, const std::string& directory);

} // namespace qola_runtime
