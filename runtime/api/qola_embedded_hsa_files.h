// qola_embedded_hsa.h for modules that name files: AITER_EMBEDDED_HSA_MAP finds hsa/gfx942//topk/a.co, too,
// which AITER's sources join from hsa/<arch>/ and /topk/a.co.
#ifndef QOLA_EMBEDDED_HSA_FILES_H
#define QOLA_EMBEDDED_HSA_FILES_H

#include "qola_embedded_hsa.h"

namespace qola_asm {

/// The embedded code objects by file name.
class EmbeddedFiles : public EmbeddedMap
{
    public:
    const_iterator find(std::string_view file) const
    {
        std::string key;
        for(const char character : file)
            if(character != '/' || key.empty() || key.back() != '/')
                key += character;
        return EmbeddedMap::find(key);
    }
};

inline constexpr EmbeddedFiles embedded_files{};

} // namespace qola_asm

#undef AITER_EMBEDDED_HSA_MAP
#define AITER_EMBEDDED_HSA_MAP ::qola_asm::embedded_files

#endif // QOLA_EMBEDDED_HSA_FILES_H
