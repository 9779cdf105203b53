// As a generator writes it for gfx942.
#pragma once

constexpr int tile_size = 64;
