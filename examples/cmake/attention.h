// The two functions that main.cpp, compiled as plain C++, calls in files that are compiled as HIP.
#pragma once

// Attention of one head of 128 rows. Each returns the library's answer: milliseconds where the stream
// config asks for timing, else 0; negative for a status.
float forward(const char* dtype, int hdim);
float backward(const char* dtype, int hdim);
