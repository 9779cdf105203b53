// Written by qola 0.1.0 from manifests/small.toml.
// A source that includes this header speaks to the libraries of this manifest.
#pragma once

#define QOLA_NS ::qola::small
#define QOLA_NS_BEGIN namespace qola { namespace small {
#define QOLA_NS_END } }

// The entry points of the libraries, and the number of parameters that AITER's have,
// which tells their forms apart.
#define QOLA_MHA_FWD_PARAMETERS 12
#define QOLA_MHA_FWD_SPLITKV_PARAMETERS 7
#define QOLA_MHA_BATCH_PREFILL_PARAMETERS 8
#define QOLA_MHA_BWD_PARAMETERS 15
