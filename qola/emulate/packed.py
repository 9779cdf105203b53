"""Packed operations (VOP3P): two values a lane, picked by op_sel."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import I16, U16
from qola.emulate.numbers import fma_f16, fma_f32, maximum, minimum
from qola.emulate.table import packed

_15 = U16(15)

packed("V_PK_ADD_F32", "f32 f32 -> f32", np.add)
packed("V_PK_MUL_F32", "f32 f32 -> f32", np.multiply)
packed("V_PK_FMA_F32", "f32 f32 f32 -> f32", fma_f32)
packed("V_PK_MOV_B32", "u32 u32 -> u32", lambda a, b: (a, b))

packed("V_PK_ADD_F16", "f16 f16 -> f16", np.add)
packed("V_PK_MUL_F16", "f16 f16 -> f16", np.multiply)
packed("V_PK_FMA_F16", "f16 f16 f16 -> f16", fma_f16)
packed("V_PK_MAX_F16", "f16 f16 -> f16", maximum)
packed("V_PK_MIN_F16", "f16 f16 -> f16", minimum)

packed("V_PK_ADD_U16", "u16 u16 -> u16", np.add)
packed("V_PK_SUB_U16", "u16 u16 -> u16", np.subtract)
packed("V_PK_ADD_I16", "i16 i16 -> i16", np.add)
packed("V_PK_SUB_I16", "i16 i16 -> i16", np.subtract)
packed("V_PK_MUL_LO_U16", "u16 u16 -> u16", np.multiply)
packed("V_PK_MAD_U16", "u16 u16 u16 -> u16", lambda a, b, c: a * b + c)
packed("V_PK_MAD_I16", "i16 i16 i16 -> i16", lambda a, b, c: a * b + c)
packed("V_PK_MAX_U16", "u16 u16 -> u16", np.maximum)
packed("V_PK_MIN_U16", "u16 u16 -> u16", np.minimum)
packed("V_PK_MAX_I16", "i16 i16 -> i16", np.maximum)
packed("V_PK_MIN_I16", "i16 i16 -> i16", np.minimum)
packed("V_PK_LSHLREV_B16", "u16 u16 -> u16", lambda a, b: b << (a & _15))
packed("V_PK_LSHRREV_B16", "u16 u16 -> u16", lambda a, b: b >> (a & _15))
packed("V_PK_ASHRREV_I16", "u16 i16 -> i16", lambda a, b: b >> (a & _15).view(I16))
