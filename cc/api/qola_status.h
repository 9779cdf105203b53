// Numbers of the entry points' statuses, and the exception that carries one.
#ifndef QOLA_STATUS_H
#define QOLA_STATUS_H

#include <stdexcept>
#include <string>

// qola_common.h documents them for users.
#define QOLA_STATUS_NO_KERNEL (-1.f)
#define QOLA_STATUS_NO_ARCH (-2.f)
#define QOLA_STATUS_FAILED (-3.f)
#define QOLA_STATUS_UNAVAILABLE (-4.f)

namespace qola_entry {

/// Ends an entry point with a status whose reason has been printed.
class StatusError : public std::runtime_error
{
    public:
    StatusError(float status, const std::string& what) : std::runtime_error(what), status(status) {}
    const float status;
};

} // namespace qola_entry

#endif // QOLA_STATUS_H
