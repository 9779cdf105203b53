// Compiles one kernel.
#ifndef QOLA_RUNTIME_COMPILE_H
#define QOLA_RUNTIME_COMPILE_H

#include "compiler.h"
#include "index.h"
#include "report.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// Returns the command that compiles a kernel library in a directory of the sources. `hip` is the path
/// of HIP's runtime; if empty, `prefix`/lib is searched.
std::vector<std::string> compile_command(const Compiler& compiler,
                                         const Index& index,
                                         const Kernel& kernel,
                                         const std::string& hip,
                                         const std::string& output);

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
    const std::string& hip; ///< path of HIP's runtime, or empty
    int timeout;            ///< seconds
    bool verbose;           ///< reports short compiles too
};

/// Compiles a kernel from copies of its sources in a directory, and returns the library's bytes. Throws
/// CompileError with the compiler's last output, or Problem if a source differs from the index.
std::string compile(const Compile& compile, const std::string& directory);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_COMPILE_H
