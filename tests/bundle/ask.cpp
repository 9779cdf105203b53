// A framework's function that calls the functions of the archive.
#include "qola_mha_fwd.h"

__attribute__((visibility("default"))) float ask(const aiter::mha_fwd_args& args, const char* dtype)
{
    return QOLA_NS(mha_fwd)(args,
                            ck_tile::stream_config{},
                            dtype,
                            /*is_group_mode=*/false,
                            mask_enum::no_mask,
                            bias_enum::no_bias,
                            /*has_lse=*/true,
                            /*use_ext_asm=*/false);
}
