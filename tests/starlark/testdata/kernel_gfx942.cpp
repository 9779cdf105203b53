#include "ck.hpp"
