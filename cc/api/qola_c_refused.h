// Statuses of C functions and the message of the thread's last failure; not installed.
#pragma once

#include "qola_c.h"
#include "qola_status.h"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace qola_c_entry {

static_assert(QOLA_NO_KERNEL == static_cast<int>(QOLA_STATUS_NO_KERNEL) &&
              QOLA_NO_ARCH == static_cast<int>(QOLA_STATUS_NO_ARCH) &&
              QOLA_FAILED == static_cast<int>(QOLA_STATUS_FAILED) &&
              QOLA_UNAVAILABLE == static_cast<int>(QOLA_STATUS_UNAVAILABLE));

/// Ends a call with a status and a message.
class Refused : public std::runtime_error
{
    public:
    Refused(int status, const std::string& what) : std::runtime_error(what), status(status) {}
    const int status;
};

[[noreturn]] inline void invalid(const std::string& what) { throw Refused(QOLA_INVALID, what); }

/// Message of this thread's last failure. Not a std::string, so that a thread has nothing to destroy.
inline thread_local char last_error[512] = "";

inline int fail(int status, const char* what)
{
    std::snprintf(last_error, sizeof last_error, "%s", what);
    return status;
}

inline const char* status_string(int status)
{
    switch(status)
    {
    case QOLA_OK: return "success";
    case QOLA_NO_KERNEL: return "no kernel of the library serves the problem";
    case QOLA_NO_ARCH: return "the library has no code for the arch of the current device";
    case QOLA_FAILED: return "a call of HIP failed, or the arguments were refused; standard error says which";
    case QOLA_UNAVAILABLE: return "the kernel that serves the problem is not at hand; standard error says why";
    case QOLA_UNSUPPORTED: return "a field is set that this library does not have";
    case QOLA_INVALID: return "a field is missing or contradicts another one";
    default: return "unknown status";
    }
}

inline int status_of(float answer)
{
    if(answer >= 0.f)
        return QOLA_OK;
    const int status = static_cast<int>(answer);
    return status >= QOLA_UNAVAILABLE && status < 0 ? status : QOLA_FAILED;
}

/// Calls `run()` and converts its exceptions to a status and a message.
template <class Run>
int answered(Run run)
{
    try
    {
        const int status = run();
        return status == QOLA_OK ? status : fail(status, status_string(status));
    }
    catch(const Refused& refused)
    {
        return fail(refused.status, refused.what());
    }
    catch(const qola_entry::StatusError& error)
    {
        return fail(static_cast<int>(error.status), error.what());
    }
    catch(const std::exception& error)
    {
        return fail(QOLA_FAILED, error.what());
    }
}

} // namespace qola_c_entry
