#pragma once
#ifdef __cplusplus
extern "C"
#endif
    int count(void);
