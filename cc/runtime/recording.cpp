#include "recording.h"

#include "qola_call.h"

#include <exception>

#include <hip/hip_runtime_api.h>

namespace qola_lazy {

std::vector<unsigned> rows_of_call(unsigned first)
{
    using qola_entry::thread_call;
    std::vector<unsigned> rows{first};
    // Composable Kernel would attribute an old error to its launch and clear it. The call itself must
    // see it.
    if(thread_call.again == nullptr || thread_call.noted != nullptr || hipPeekAtLastError() != hipSuccess)
        return rows;
    std::vector<qola_entry::Noted> noted;
    try
    {
        const qola_entry::Recorded recorded(noted);
        thread_call.again(thread_call.call);
    }
    catch(const std::exception&)
    {
        // The call itself will report it.
    }
    for(const unsigned row : qola_entry::rows_of(noted))
        if(row != first)
            rows.push_back(row);
    return rows;
}

} // namespace qola_lazy
