// Calls a handler as XLA does on a GPU: with a stream, buffers, and a problem in words.
//
//   call_handler HANDLERS LIBRARY FUNCTION DTYPE
//
// Prints the handler's FFI version, then its error message, or nothing.
#include "qola_c.h"
#include "xla/ffi/api/c_api.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct XLA_FFI_Error
{
    std::string message;
};

namespace {

void* stream = nullptr;

constexpr std::int64_t BATCH = 1, ROWS = 64, HEADS = 2, DIM = 32;

void* symbol(const char* library, const char* name)
{
    void* const loaded = dlopen(library, RTLD_NOW);
    void* const found  = loaded == nullptr ? nullptr : dlsym(loaded, name);
    if(found == nullptr)
    {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(2);
    }
    return found;
}

XLA_FFI_Api make_api()
{
    XLA_FFI_Api api{};
    api.struct_size          = XLA_FFI_Api_STRUCT_SIZE;
    api.api_version          = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    api.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) { return new XLA_FFI_Error{args->message}; };
    api.XLA_FFI_Stream_Get   = [](XLA_FFI_Stream_Get_Args* args) -> XLA_FFI_Error* {
        args->stream = stream;
        return nullptr;
    };
    return api;
}

XLA_FFI_CallFrame make_frame(const XLA_FFI_Api& api)
{
    XLA_FFI_CallFrame frame{};
    frame.struct_size       = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api               = &api;
    frame.stage             = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args.struct_size  = XLA_FFI_Args_STRUCT_SIZE;
    frame.rets.struct_size  = XLA_FFI_Rets_STRUCT_SIZE;
    frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
    return frame;
}

// As XLA does when a handler is registered.
void print_version(XLA_FFI_Handler* handler, const XLA_FFI_Api& api)
{
    XLA_FFI_Metadata metadata{};
    metadata.struct_size             = XLA_FFI_Metadata_STRUCT_SIZE;
    metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    XLA_FFI_Metadata_Extension extension{
        {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
    XLA_FFI_CallFrame frame = make_frame(api);
    frame.extension_start   = &extension.extension_base;
    handler(&frame);
    std::printf("FFI %d.%d\n", metadata.api_version.major_version, metadata.api_version.minor_version);
}

std::vector<std::int64_t> make_problem(int dtype)
{
    qola_mha_args args{};
    args.struct_size = sizeof args;
    args.dtype       = dtype;
    args.batch       = BATCH;
    args.nhead_q = args.nhead_k = HEADS;
    args.seqlen_q = args.seqlen_k = ROWS;
    args.hdim_q = args.hdim_v = DIM;
    for(qola_tensor* tensor : {&args.q, &args.k, &args.v, &args.o})
        *tensor = {nullptr, ROWS * HEADS * DIM, DIM, HEADS * DIM};
    args.lse = {nullptr, HEADS * ROWS, ROWS, 1};
    std::vector<std::int64_t> words(sizeof args / 8);
    std::memcpy(words.data(), &args, sizeof args);
    return words;
}

} // namespace

int main(int argc, char** argv)
{
    if(argc != 5)
        return 2;
    const auto set_library =
        reinterpret_cast<void (*)(int, const char*, const char*)>(symbol(argv[1], "qola_jax_set_library"));
    const auto handler = reinterpret_cast<XLA_FFI_Handler*>(symbol(argv[1], "qola_jax_mha_fwd"));
    const auto create  = reinterpret_cast<int (*)(void**)>(symbol("libamdhip64.so.7", "hipStreamCreate"));
    if(create(&stream) != 0)
        return 2;
    const XLA_FFI_Api api = make_api();
    print_version(handler, api);
    set_library(0, argv[2], argv[3]);

    std::vector<std::uint16_t> memory(4 * BATCH * ROWS * HEADS * DIM);
    std::vector<float> lse(BATCH * HEADS * ROWS);
    std::int64_t dims[] = {BATCH, ROWS, HEADS, DIM};
    XLA_FFI_Buffer buffers[5];
    for(int at = 0; at < 5; ++at)
        buffers[at] = {XLA_FFI_Buffer_STRUCT_SIZE,
                       nullptr,
                       at < 4 ? XLA_FFI_DataType_F16 : XLA_FFI_DataType_F32,
                       at < 4 ? static_cast<void*>(&memory[at * BATCH * ROWS * HEADS * DIM]) : lse.data(),
                       at < 4 ? 4 : 3,
                       dims};
    XLA_FFI_CallFrame frame  = make_frame(api);
    XLA_FFI_ArgType types[]  = {XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER};
    XLA_FFI_RetType kinds[]  = {XLA_FFI_RetType_BUFFER, XLA_FFI_RetType_BUFFER};
    void* args[]             = {&buffers[0], &buffers[1], &buffers[2]};
    void* rets[]             = {&buffers[3], &buffers[4]};
    frame.args.size          = 3;
    frame.args.types         = types;
    frame.args.args          = args;
    frame.rets.size          = 2;
    frame.rets.types         = kinds;
    frame.rets.rets          = rets;

    std::vector<std::int64_t> problem = make_problem(std::atoi(argv[4]));
    std::int64_t places[]             = {offsetof(qola_mha_args, q),
                                         offsetof(qola_mha_args, k),
                                         offsetof(qola_mha_args, v),
                                         offsetof(qola_mha_args, o),
                                         offsetof(qola_mha_args, lse)};
    XLA_FFI_Array arrays[]            = {{XLA_FFI_DataType_S64, 5, places},
                                         {XLA_FFI_DataType_S64, problem.size(), problem.data()}};
    XLA_FFI_ByteSpan spans[]          = {{"places", 6}, {"problem", 7}};
    XLA_FFI_ByteSpan* names[]         = {&spans[0], &spans[1]};
    XLA_FFI_AttrType attribute_types[] = {XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY};
    void* attributes[]                = {&arrays[0], &arrays[1]};
    frame.attrs.size                  = 2;
    frame.attrs.types                 = attribute_types;
    frame.attrs.names                 = names;
    frame.attrs.attrs                 = attributes;
    if(XLA_FFI_Error* const error = handler(&frame))
        std::printf("%s\n", error->message.c_str());
    return 0;
}
