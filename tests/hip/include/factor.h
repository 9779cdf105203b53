#pragma once

#define FACTOR 5
