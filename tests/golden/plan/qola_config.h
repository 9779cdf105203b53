// Written by qola 0.1.0 from manifests/small.toml.
// A source that includes this header speaks to the libraries of this manifest.
#pragma once

#define QOLA_NS ::qola::small
#define QOLA_NS_BEGIN namespace qola { namespace small {
#define QOLA_NS_END } }

// Number of parameters of AITER's entry points, which tells their forms apart.
#define QOLA_MHA_FWD_PARAMETERS 12
#define QOLA_MHA_BWD_PARAMETERS 15
