// Values times SCALE.
#pragma once

void scale(int* values, int count);
