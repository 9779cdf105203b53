#pragma once

int count_twice();
