// What main.cpp, compiled as plain C++, knows of the two files that are compiled as HIP.
#pragma once

// Attention of one head, for a head dimension: the answer of the entry point, negative for a status.
float forward(int hdim);
float backward(int hdim);
