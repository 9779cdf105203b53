// Calls attention forward, and backward if the bundle has it.
//
//   consumer [DTYPE HDIM]       by default bf16 128, as in the README's manifest
#include "attention.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int count, char** words)
{
    const char* dtype = count > 2 ? words[1] : "bf16";
    const int hdim    = count > 2 ? std::atoi(words[2]) : 128;
    try
    {
        std::printf("forward %g\n", static_cast<double>(forward(dtype, hdim)));
#ifdef CONSUMER_BACKWARD
        std::printf("backward %g\n", static_cast<double>(backward(dtype, hdim)));
#endif
    }
    catch(const std::exception& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
