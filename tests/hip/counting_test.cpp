#include "tests/hip/counter.h"
#include "tests/hip/counting.h"

int main() { return count_twice() == 3 && count() == 3 ? 0 : 1; }
