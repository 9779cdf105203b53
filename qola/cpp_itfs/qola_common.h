// What every public header of a qola library shares.
#pragma once

// Generated per manifest: QOLA_NS, QOLA_NS_BEGIN, QOLA_NS_END and the
// signature of each entry point.
#include "qola_config.h"

// The library is compiled with hidden visibility and linked with an export
// list; an entry point has to pass both.
#define QOLA_API __attribute__((visibility("default")))
