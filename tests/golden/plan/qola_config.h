// Written by qola 0.1.0 from manifests/small.toml.
// A source that includes this header speaks to the libraries of this manifest.
#pragma once

// Their namespace below qola::, for QOLA_NS(function) of qola_common.h.
#define QOLA_NAMESPACE small

// The functions of the libraries, and how many parameters each takes.
#define QOLA_MHA_FWD_PARAMETERS 12
#define QOLA_MHA_FWD_SPLITKV_PARAMETERS 7
#define QOLA_MHA_BATCH_PREFILL_PARAMETERS 8
#define QOLA_MHA_BWD_PARAMETERS 15
