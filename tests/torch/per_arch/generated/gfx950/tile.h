// As a generator writes it for gfx950.
#pragma once

constexpr int tile_size = 128;
