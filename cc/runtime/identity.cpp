#include "identity.h"

#include "text.h"

#include <algorithm>

namespace qola_runtime {
namespace {

#define QOLA_IDENTITY(...) #__VA_ARGS__
constexpr const char* kLine =
#include "identity.hip"
    ;
#undef QOLA_IDENTITY

} // namespace

std::string identity_source()
{
    return std::string("#include <hip/hip_version.h>\n#include <cstddef>\n") + kLine + "\n";
}

std::string identity_in(std::string_view preprocessed)
{
    for(const std::string_view line : lines(preprocessed))
    {
        std::vector<std::string> words = split(line, " \t\r\"");
        if(words.empty() || words.front() != "qola_identity")
            continue;
        words.erase(words.begin());
        return join(words, " ");
    }
    return {};
}

} // namespace qola_runtime
