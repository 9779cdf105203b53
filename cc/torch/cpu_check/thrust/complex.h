// Stands for rocThrust's header of this name, which PyTorch's headers include in a HIP compile and
// qola's pinned ROCm does not have: qola_cpu_check.h. No attention module computes with it.
#pragma once

#include <complex>

namespace thrust
{

template <typename T>
struct complex : std::complex<T>
{
    using std::complex<T>::complex;

    template <typename U>
    complex(const std::complex<U>& other) : std::complex<T>(other)
    {
    }
};

template <typename T>
T abs(const complex<T>& x)
{
    return std::abs(static_cast<std::complex<T>>(x));
}

template <typename T>
complex<T> polar(const T& rho, const T& theta = T())
{
    return std::polar(rho, theta);
}

#define QOLA_OF_STD(function)                                  \
    template <typename T>                                      \
    complex<T> function(const complex<T>& x)                   \
    {                                                          \
        return std::function(static_cast<std::complex<T>>(x)); \
    }
QOLA_OF_STD(acos)
QOLA_OF_STD(acosh)
QOLA_OF_STD(asin)
QOLA_OF_STD(asinh)
QOLA_OF_STD(atan)
QOLA_OF_STD(atanh)
QOLA_OF_STD(cos)
QOLA_OF_STD(cosh)
QOLA_OF_STD(exp)
QOLA_OF_STD(log)
QOLA_OF_STD(log10)
QOLA_OF_STD(proj)
QOLA_OF_STD(sin)
QOLA_OF_STD(sinh)
QOLA_OF_STD(sqrt)
QOLA_OF_STD(tan)
QOLA_OF_STD(tanh)
#undef QOLA_OF_STD

template <typename A, typename B>
auto pow(const A& base, const B& exponent)
{
    return complex(std::pow(base, exponent));
}

template <typename T>
complex(std::complex<T>) -> complex<T>;

} // namespace thrust
