#pragma once

int count_twice();

// The path of a generated header in the compile.
const char* start_path();
