// One compile of one kernel.
#ifndef QOLA_RUNTIME_COMPILE_H
#define QOLA_RUNTIME_COMPILE_H

#include "compiler.h"
#include "index.h"
#include "report.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// The command that makes a kernel library, to be run in a directory of the sources. `hip` is the path
/// of HIP's runtime; where it is empty, it is looked for below `prefix`/lib.
std::vector<std::string> compile_command(const Compiler& compiler,
                                         const Index& index,
                                         const Kernel& kernel,
                                         const std::string& hip,
                                         const std::string& output);

/// A compile failed. `place`: what is wrong with the directory it was done in, so that another may do;
/// empty where that is not to blame.
class CompileError : public Problem
{
    public:
    CompileError(const std::string& what, const std::string& place) : Problem(what), place(place) {}
    const std::string place;
};

/// A compile to be done.
struct Compile
{
    const Compiler& compiler;
    const std::string& root; ///< of the sources
    const Index& index;
    const Kernel& kernel;
    const std::string& hip; ///< path of HIP's runtime, or empty
    int timeout;            ///< seconds
    bool verbose;           ///< says also what took no time
};

/// Compiles a kernel from copies of its sources, with all files in a directory, and returns the
/// library's bytes. Throws CompileError with the last of what the compiler printed, and Problem where
/// a source is not what the index says.
std::string compile(const Compile& compile, const std::string& directory);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_COMPILE_H
