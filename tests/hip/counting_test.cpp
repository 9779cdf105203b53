#include "own/counting.h"
#include "tests/hip/counter.h"

#include <cstdio>
#include <cstring>

static_assert(sizeof BAZEL_CURRENT_REPOSITORY == 1, "the main repository has no name");

int main()
{
    if(count_twice() != 3 || count() != 3)
    {
        std::fprintf(stderr, "the counter is in the program twice\n");
        return 1;
    }
    // With --experimental_output_paths=strip of .bazelrc, which makes the paths of all configurations equal.
    if(std::strncmp(start_path(), "bazel-out/cfg/", 14) != 0)
    {
        std::fprintf(stderr, "a path of one configuration: %s\n", start_path());
        return 1;
    }
    return 0;
}
