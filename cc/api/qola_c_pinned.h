// Pinned host memory for AITERs that copy from it in group mode of the backward; not installed.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

namespace qola_c_entry {

/// A pool of free pieces.
///
/// AITER returns its piece from a host function on the stream, which must not call HIP: hipHostFree would
/// wait for the stream that waits for it.
class Pinned
{
    public:
    static std::shared_ptr<void> piece(std::size_t bytes)
    {
        Pinned& all  = instance();
        Piece* piece = all.taken(bytes);
        // The destructor also frees it if allocating the shared_ptr fails.
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
        // Never destroyed, because streams may use pieces when the process ends.
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
        // Round sizes up, so that most calls find a piece.
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
