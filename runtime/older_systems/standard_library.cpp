// Functions that libstdc++ has gained since GCC 8, GLIBCXX_3.4.24, and that its headers use. They are instantiated
// here, hidden, like in libstdc++_nonshared.a of Red Hat's compilers for older systems.
#include <new>
#include <sstream>

#define QOLA_HIDDEN __attribute__((visibility("hidden")))

namespace std {

// GLIBCXX_3.4.26
#if _GLIBCXX_RELEASE >= 9
template QOLA_HIDDEN basic_istringstream<char>::basic_istringstream();
template QOLA_HIDDEN basic_ostringstream<char>::basic_ostringstream();
template QOLA_HIDDEN basic_stringstream<char>::basic_stringstream();
#endif

// GLIBCXX_3.4.29
#if _GLIBCXX_RELEASE >= 11
template QOLA_HIDDEN string basic_stringbuf<char>::str() const&;
template QOLA_HIDDEN string basic_istringstream<char>::str() const&;
template QOLA_HIDDEN string basic_ostringstream<char>::str() const&;
template QOLA_HIDDEN string basic_stringstream<char>::str() const&;
template QOLA_HIDDEN string basic_stringbuf<char>::str() &&;
template QOLA_HIDDEN string basic_istringstream<char>::str() &&;
template QOLA_HIDDEN string basic_ostringstream<char>::str() &&;
template QOLA_HIDDEN string basic_stringstream<char>::str() &&;

// optnone: else it is put aside, into a section that rules/private/large_code.ld does not know.
QOLA_HIDDEN __attribute__((noinline, optnone)) void __throw_bad_array_new_length()
{
    throw bad_array_new_length();
}
#endif

} // namespace std
