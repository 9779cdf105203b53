// CXXABI_1.3.13: the two functions that headers of GCC 11 copy and destroy exception_ptr by, around
// those of before. By their versions: other objects of a library have functions of these names, from
// the headers, which call the two.
#include <exception>

#if _GLIBCXX_RELEASE >= 11

#define QOLA_OLD(name, symbol) __asm__(".symver " #name ", " symbol "@CXXABI_1.3.3")

extern "C" {

void qola_copy_exception_ptr(void* copy, const void* one);
void qola_destroy_exception_ptr(void* one);
QOLA_OLD(qola_copy_exception_ptr, "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
QOLA_OLD(qola_destroy_exception_ptr, "_ZNSt15__exception_ptr13exception_ptrD1Ev");
}

namespace std::__exception_ptr {

__attribute__((visibility("hidden"))) void exception_ptr::_M_addref() noexcept
{
    // Never destroyed: the reference stays valid.
    alignas(exception_ptr) unsigned char copy[sizeof(exception_ptr)];
    qola_copy_exception_ptr(copy, this);
}

__attribute__((visibility("hidden"))) void exception_ptr::_M_release() noexcept
{
    qola_destroy_exception_ptr(this);
    _M_exception_object = nullptr;
}

} // namespace std::__exception_ptr
#endif
