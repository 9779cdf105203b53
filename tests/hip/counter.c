#include "tests/hip/counter.h"

int count(void)
{
    static int class; /* a name that C++ refuses */
    return ++class;
}
