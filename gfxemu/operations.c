// The functions of the table of operations, for waves of 32 and of 64 lanes.

#include "engine.h"

#include "arithmetic.h"
#include "operations.h"
