// Finds or compiles the library of a kernel.
#pragma once

#include "compile.h"
#include "index.h"
#include "ownership.h"
#include "store.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace qola_runtime {

/// A module: the compiler that it was built with, and the sources of its kernels.
struct Module
{
    std::string identity; ///< the compiler of the library
    std::string root;     ///< of the module's sources; empty if they are not installed
    std::string index;    ///< required digest of kernels.index; empty for any
    Trust trust;          ///< owners whose sources may be compiled
};

/// Finds kernels, and compiles missing ones.
class Obtainer
{
    public:
    /// `hip` is the path of HIP's runtime to link to, or empty.
    Obtainer(const Settings& settings, Store& store, std::string hip);

    /// Returns a kernel library. Throws Problem with the complete reason if it is unavailable.
    Library obtain(const Kernel& kernel, const Module& module);

    /// Compiles a kernel; if `anew`, even if a cache has it.
    Library compile(const Kernel& kernel, const Module& module, bool anew);

    /// Returns the installed compiler, or null. Throws Problem.
    const Compiler* compiler() { return compilers_.find(); }

    private:
    struct Work;

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

/// Returns the directory of a module's sources, from the settings or else from the library.
std::string root_of(const Settings& settings, const std::string& module, const std::string& beside);

} // namespace qola_runtime
