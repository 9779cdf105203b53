// What AITER's class AiterAsmKernel does to load a kernel, in words of our own: first of the 0.1.7
// wheel, then of later trees. The build includes qola_asm_files.h before it.
#include <cstring>
#include <map>
#include <string>

#define PROBE extern "C" __attribute__((visibility("default")))

// 0 if the file is loaded, else 1 and the exception's text.
PROBE int asm_file_load(const char* file, char* message, std::size_t length)
{
    try
    {
        const char* AITER_ASM_DIR = std::getenv("AITER_ASM_DIR");
        hipModule_t module;
        return hipModuleLoad(&module, (std::string(AITER_ASM_DIR) + file).c_str()) == hipSuccess ? 0 : 2;
    }
    catch(const std::runtime_error& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return 1;
    }
}

// Tables as qola/codegen/asm/script.py merges them.
using CFG = std::map<std::string, int>;
static CFG qola_gfx942_cfg_probe = {{"tile", 128}};
static CFG qola_gfx950_cfg_probe = {{"tile", 256}};
#define cfg_probe \
    (::qola_asm::table_of_arch<CFG>({{"gfx942", &qola_gfx942_cfg_probe}, {"gfx950", &qola_gfx950_cfg_probe}}))

// The value of the current device's table, else 0 and the exception's text.
PROBE int asm_table_value(char* message, std::size_t length)
{
    try
    {
        const CFG* const table = &cfg_probe;
        return table->at("tile");
    }
    catch(const std::runtime_error& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return 0;
    }
}

#include AITER_EMBEDDED_HSA_HEADER

// The size of a later tree's code object, 0 if there is none.
PROBE std::size_t asm_file_size(const char* file)
{
    const auto found = AITER_EMBEDDED_HSA_MAP.find(std::string("hsa/gfx942/") + file);
    return found == AITER_EMBEDDED_HSA_MAP.end() ? 0 : found->second.size();
}
