// The C functions over arguments of AITER's later trees, as far as the pinned one has no such members.
#include <functional>
#include <memory>
#include <string>

#include <hip/hip_runtime_api.h>

namespace ck_tile {
struct stream_config
{
    hipStream_t stream_id_;
};
} // namespace ck_tile

#include "qola_c_entry.h"

static int made = 0;
// In place of HIP's: counted, and nothing gives back what it made.
extern "C" hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned)
{
    ++made;
    *memory = std::malloc(bytes);
    return hipSuccess;
}

struct Args
{
    int batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v;
    const void *q_ptr, *k_ptr, *v_ptr;
    void* o_ptr;
    const void *seqstart_q_ptr, *seqstart_k_ptr, *cu_seqlen_q_ptr;
    bool is_group_mode, use_asm_v3;
    std::function<void*(size_t, bool)> workspace_alloc;
    std::function<std::shared_ptr<void>(size_t)> pinned_host_alloc;
};
static bool assembly;
static const void* pinned;

struct Later
{
    using Args                                     = ::Args;
    static constexpr const char* name              = "mha_fwd";
    static constexpr std::string_view parameters[] = {"args", "stream"};

    static qola_c_entry::Kernels kernels()
    {
        static constexpr qola_c_entry::Kernel one{"kernel", "gfx950"};
        return {&one, 1};
    }


    template <class More>
    static float call(const Args& args, const ck_tile::stream_config&, const More&)
    {
        assembly = args.use_asm_v3;
        if(!args.is_group_mode)
            return 0;
        if(args.seqstart_q_ptr == nullptr || args.seqstart_k_ptr == nullptr)
            return -1;
        const auto piece  = args.pinned_host_alloc(64);
        const auto second = args.pinned_host_alloc(5000);
        pinned            = piece.get();
        if(!args.workspace_alloc(256, false))
            return -3;
        // Nothing was copied to it where the call is recorded; AITER reads it.
        return made != 0 || static_cast<const int*>(pinned)[15] == 0 ? 0 : -3;
    }
};
QOLA_C_DEFINE(mha_fwd, Later)

static int failed(const char* what)
{
    std::printf("%s: %s\n", what, QOLA_C(mha_fwd_last_error)());
    return 1;
}

int main()
{
    static char memory[4096];
    qola_mha_args args{};
    args.struct_size = sizeof args;
    args.dtype       = QOLA_BF16;
    args.batch = args.nhead_q = args.nhead_k = 1;
    args.seqlen_q = args.seqlen_k = args.hdim_q = args.hdim_v = 64;
    std::uint64_t size = 0;

    args.cu_seqlens_q = memory;
    if(QOLA_C(mha_fwd_workspace_size)(&args, &size) != QOLA_OK || assembly)
        return failed("assembly kernels, which read lengths in group mode alone");
    args.group        = 1;
    args.max_seqlen_q = 64;
    if(QOLA_C(mha_fwd_workspace_size)(&args, &size) != QOLA_OK || !assembly)
        return failed("a question in group mode, without seqstart_q");
    if(size < 256 || made != 0)
        return failed("a question that allocates");

    args.seqstart_q = args.seqstart_k = memory;
    args.q.data = args.k.data = args.v.data = args.o.data = memory;
    args.workspace      = memory;
    args.workspace_size = size;
    const void* first   = nullptr;
    for(int call = 0; call < 3; ++call)
    {
        if(QOLA_C(mha_fwd)(&args, nullptr) != QOLA_OK)
            return failed("a call");
        first = call == 0 ? pinned : first;
        if(made != 2 || pinned != first)
            return failed("pinned memory that is not used again");
    }
    return 0;
}
