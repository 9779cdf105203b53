// Pinned memory of the host, for AITERs that copy from it in group mode of backward; not installed.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

namespace qola_c_entry {

/// Pieces that no call uses, for later ones.
///
/// AITER gives its piece back from a function of the host on the stream, where no function of HIP may be
/// called: hipHostFree would wait for the stream that waits for it.
class Pinned
{
    public:
    static std::shared_ptr<void> piece(std::size_t bytes)
    {
        Pinned& all  = instance();
        Piece* piece = all.taken(bytes);
        // By its destructor also where there is no memory for the shared_ptr.
        return std::shared_ptr<void>(piece->memory, [&all, piece](void*) { all.give(piece); });
    }

    private:
    struct Piece
    {
        void* memory     = nullptr;
        std::size_t size = 0;
        Piece* next      = nullptr;
    };

    static Pinned& instance()
    {
        // Never destroyed: streams may still have pieces when the process ends.
        static auto& all = *new Pinned;
        return all;
    }

    Piece* taken(std::size_t bytes)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            for(Piece** at = &free_; *at != nullptr; at = &(*at)->next)
                if((*at)->size >= bytes)
                {
                    Piece* found = *at;
                    *at          = found->next;
                    return found;
                }
        }
        auto made = std::make_unique<Piece>();
        // Few sizes, so that most calls find a piece.
        for(made->size = 4096; made->size < bytes;)
            made->size *= 2;
        if(hipHostMalloc(&made->memory, made->size, hipHostMallocPortable) != hipSuccess)
        {
            static_cast<void>(hipGetLastError());
            throw std::bad_alloc();
        }
        return made.release();
    }

    void give(Piece* piece)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        piece->next = free_;
        free_       = piece;
    }

    std::mutex mutex_;
    Piece* free_ = nullptr;
};

} // namespace qola_c_entry
