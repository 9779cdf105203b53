#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/identity.h"

namespace qola_runtime {

int identity(Tool& tool)
{
    if(tool.arguments.operands.size() != 1)
        throw UsageError("identity: expected one FILE");
    const std::string& path = tool.arguments.operands.front();
    const std::string found = identity_in(read_file(path));
    if(found.empty())
        throw Problem(path +
                      " has no line that begins with qola_identity; expected a preprocessed "
                      "identity.hip");
    print(found);
    return 0;
}

} // namespace qola_runtime
