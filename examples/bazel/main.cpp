// Two libraries with the same kernels in one process. No GPU is needed: without one each call answers
// with a status, status::failed (-3).
#include <cstdio>

float ask_left(const char* dtype, int hdim, bool only_check_v3);
float ask_right(const char* dtype, int hdim, bool only_check_v3);

int main()
{
    int failures = 0;
    const auto expect_none = [&](const char* what, float answer) {
        std::printf("%s: %g\n", what, static_cast<double>(answer));
        failures += answer >= 0;
    };
    expect_none("left, is there an asm kernel", ask_left("fp16", 32, true));
    expect_none("right, is there an asm kernel", ask_right("fp16", 32, true));
    // Outside of both manifests.
    expect_none("left, a data type nobody has", ask_left("int7", 32, false));
    expect_none("right, a head dimension nobody has", ask_right("fp16", 4096, false));
    return failures;
}
