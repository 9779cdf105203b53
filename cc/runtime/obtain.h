// From a kernel to its library: found, or compiled.
#ifndef QOLA_RUNTIME_OBTAIN_H
#define QOLA_RUNTIME_OBTAIN_H

#include "compiler.h"
#include "index.h"
#include "ownership.h"
#include "store.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace qola_runtime {

/// Of the module that has a kernel: all that matters for the kernel.
struct Module
{
    std::string identity; ///< the compiler of the library
    std::string root;     ///< of the module's sources; empty where they are not installed
    std::string index;    ///< digest that kernels.index has to have; empty for any
    Trust trust;          ///< whose sources are compiled
};

/// Finds kernels and compiles those that are nowhere.
class Obtainer
{
    public:
    /// `hip`: path of HIP's runtime to link to, or empty.
    Obtainer(const Settings& settings, Store& store, std::string hip);

    /// Returns a kernel library. Throws Problem where it cannot be had: with all that is to be
    /// said.
    Library obtain(const Kernel& kernel, const Module& module);

    /// Compiles a kernel although it may be there.
    Library compile_anew(const Kernel& kernel, const Module& module);

    /// The compiler, null where there is none. Throws Problem.
    const Compiler* compiler() { return compilers_.find(); }

    private:
    struct Work;

    Library compiled(const Kernel& kernel, const Module& module, bool anew);
    Library into_cache(const Work& work, bool anew);
    Library in_private(const Work& work, const std::string& why);
    std::shared_ptr<const Index> index_of(const Module& module);

    const Settings& settings_;
    Store& store_;
    const std::string hip_;
    Compilers compilers_;
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const Index>> indexes_; ///< by root
};

/// The directory of sources of a module: in the settings, or where the library says.
std::string root_of(const Settings& settings, const std::string& module, const std::string& beside);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_OBTAIN_H
