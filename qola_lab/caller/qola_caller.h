// Calls the C++ entry points of a library with values by name, for Python. The member names are
// those of every known AITER tree. qola verify calls these functions and not the C ones of qola_c.h:
// it places each accumulator itself, and tries kernels whose problems the C functions refuse.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace qola_caller {

inline void check(hipError_t error, const char* what)
{
    if(error == hipSuccess)
        return;
    std::fprintf(stderr, "caller: %s: %s\n", what, hipGetErrorString(error));
    std::exit(3);
}

/// Device memory for one call.
class Memory
{
    public:
    Memory()              = default;
    Memory(const Memory&) = delete;
    ~Memory()
    {
        for(void* pointer : pointers)
            (void)hipFree(pointer);
    }

    void* operator()(std::size_t bytes)
    {
        void* pointer = nullptr;
        check(hipMalloc(&pointer, bytes), "hipMalloc");
        pointers.push_back(pointer);
        return pointer;
    }

    private:
    std::vector<void*> pointers;
};

/// The arguments that an entry point takes first.
template <class Args, class... More>
Args arguments_of(float (*)(const Args&, More...));

/// Values by name; knows the names that no member or parameter took.
class Values
{
    public:
    /// Reads words of the form name=value.
    explicit Values(const std::string& text)
    {
        std::istringstream words(text);
        for(std::string word; words >> word;)
            given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }

    /// Sets a member or parameter if its name is given.
    template <class T>
    void take(const char* name, T& to)
    {
        const auto found = given.find(name);
        if(found == given.end())
            return;
        taken[name] = true;
        if constexpr(std::is_pointer_v<T>)
            to = reinterpret_cast<T>(number<unsigned long long>(name, found->second));
        else if constexpr(std::is_same_v<T, std::string>)
            to = found->second;
        else if constexpr(std::is_floating_point_v<T>)
            to = static_cast<T>(number<double>(name, found->second));
        else
        {
            using Number = std::conditional_t<std::is_unsigned_v<T>, unsigned long long, long long>;
            const auto value = number<Number>(name, found->second);
            to = static_cast<T>(value);
            if(static_cast<decltype(value)>(to) != value)
                throw std::out_of_range(std::string(name) + "=" + found->second);
        }
    }

    template <class... Names>
    bool has(Names... names) const
    {
        return (given.contains(names) && ...);
    }

    /// The first name that nothing took; empty if all were taken.
    std::string left() const
    {
        for(const auto& [name, _] : given)
            if(!taken.contains(name))
                return name;
        return "";
    }

    private:
    /// A whole text as a number: the start of one is another problem.
    template <class N>
    static N number(const char* name, const std::string& text)
    {
        std::size_t end = 0;
        N value;
        if constexpr(std::is_floating_point_v<N>)
            value = std::stod(text, &end);
        else if constexpr(std::is_unsigned_v<N>)
            value = std::stoull(text, &end, 0);
        else
            value = std::stoll(text, &end, 0);
        if(end != text.size())
            throw std::invalid_argument(std::string(name) + "=" + text);
        return value;
    }

    std::map<std::string, std::string> given;
    std::map<std::string, bool> taken;
};

/// A parameter behind the arguments, of any type.
class Parameter
{
    public:
    Parameter(Values& of, const char* by) : values(of), name(by) {}

    template <class T>
        requires(!std::is_reference_v<T>)
    operator T() const
    {
        T value{};
        values.take(name, value);
        return value;
    }

    private:
    Values& values;
    const char* name;
};

/// The members of known trees, apart from tensors.
#define QOLA_CALLER_MEMBERS(TAKE)                                                                       \
    TAKE(use_asm_v3) TAKE(how_v3_bf16_cvt) TAKE(v3_bf16_cvt) TAKE(v3_atomic_fp32) TAKE(v3_api_check)    \
    TAKE(data_type) TAKE(is_group_mode) TAKE(mask_type) TAKE(bias_type) TAKE(has_lse) TAKE(has_dbias)   \
    TAKE(has_dropout) TAKE(is_store_randval) TAKE(is_deterministic) TAKE(has_sink) TAKE(has_mask)       \
    TAKE(hdim_q) TAKE(hdim_v) TAKE(batch) TAKE(nhead_q) TAKE(nhead_k) TAKE(seqlen_q) TAKE(seqlen_k)     \
    TAKE(max_seqlen_q) TAKE(max_seqlen_k) TAKE(seqlen_knew) TAKE(min_seqlen_q) TAKE(logits_soft_cap)    \
    TAKE(window_size_left) TAKE(window_size_right) TAKE(sink_size) TAKE(scale) TAKE(scale_s)            \
    TAKE(scale_p) TAKE(scale_o) TAKE(p_drop) TAKE(p_undrop) TAKE(s_randval) TAKE(rand_val_ptr)          \
    TAKE(rotary_cos_ptr) TAKE(rotary_sin_ptr) TAKE(rotary_dim) TAKE(sink_ptr) TAKE(d_sink_ptr)          \
    TAKE(seqstart_q_ptr) TAKE(seqstart_k_ptr) TAKE(seqlen_q_ptr) TAKE(seqlen_k_ptr)                     \
    TAKE(cu_seqlen_q_ptr) TAKE(cu_seqlen_k_ptr) TAKE(seqstart_padded_q_ptr) TAKE(seqstart_padded_k_ptr) \
    TAKE(block_table_ptr) TAKE(batch_stride_block_table) TAKE(is_gappy) TAKE(cache_batch_idx)           \
    TAKE(num_splits) TAKE(num_total_pages) TAKE(page_block_size) TAKE(kv_indptr) TAKE(kv_page_indices)  \
    TAKE(kv_last_page_lens)

#define QOLA_CALLER_TENSORS(TENSOR)                                                              \
    TENSOR(q) TENSOR(k) TENSOR(v) TENSOR(o) TENSOR(do) TENSOR(knew) TENSOR(vnew) TENSOR(dq)      \
    TENSOR(dk) TENSOR(dv) TENSOR(d) TENSOR(dq_acc) TENSOR(bias) TENSOR(dbias) TENSOR(randval)    \
    TENSOR(lse) TENSOR(lsed) TENSOR(lse_acc) TENSOR(o_acc) TENSOR(q_descale) TENSOR(k_descale)   \
    TENSOR(v_descale)

#define QOLA_CALLER_TAKE(name)            \
    if constexpr(requires { args.name; }) \
        values.take(#name, args.name);
#define QOLA_CALLER_TENSOR(name)          \
    QOLA_CALLER_TAKE(name##_ptr)          \
    QOLA_CALLER_TAKE(stride_##name)       \
    QOLA_CALLER_TAKE(nhead_stride_##name) \
    QOLA_CALLER_TAKE(batch_stride_##name) \
    QOLA_CALLER_TAKE(split_stride_##name)

/// Sets the members of an entry point's arguments that are given.
template <class Args>
void fill(Args& args, Values& values, Memory& memory)
{
    QOLA_CALLER_MEMBERS(QOLA_CALLER_TAKE)
    QOLA_CALLER_TENSORS(QOLA_CALLER_TENSOR)
    if constexpr(requires { args.drop_seed_offset; })
    {
        std::pair<std::uint64_t, std::uint64_t> seed(0, 0);
        values.take("drop_seed", seed.first);
        values.take("drop_offset", seed.second);
        args.drop_seed_offset = seed;
    }
    if constexpr(requires { args.workspace_alloc; })
        args.workspace_alloc = [&memory](std::size_t bytes, bool zeroed) {
            void* pointer = memory(bytes);
            if(zeroed)
                check(hipMemset(pointer, 0, bytes), "hipMemset");
            return pointer;
        };
    if constexpr(requires { args.pinned_host_alloc; })
        args.pinned_host_alloc = [](std::size_t bytes) {
            return std::shared_ptr<void>(std::malloc(bytes), std::free);
        };
}

#undef QOLA_CALLER_TENSOR
#undef QOLA_CALLER_TAKE
#undef QOLA_CALLER_TENSORS
#undef QOLA_CALLER_MEMBERS

/// An entry point with values.
using Call = float (*)(Values&, Memory&);

/// Calls an entry point and writes its status; returns "", or the error in the values.
inline const char* call(const std::map<std::string, Call>& calls, const char* entry, const char* text, float* status)
{
    static thread_local std::string wrong;
    try
    {
        const auto found = calls.find(entry);
        if(found == calls.end())
            throw std::runtime_error("the library has no entry point " + std::string(entry));
        Values values(text);
        Memory memory;
        *status = found->second(values, memory);
        wrong   = values.left().empty() ? "" : entry + (" takes no " + values.left());
    }
    catch(const std::exception& error)
    {
        wrong = error.what();
    }
    return wrong.c_str();
}

} // namespace qola_caller
