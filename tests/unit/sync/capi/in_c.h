/* The C ABI as a C program uses it: in_c.c is compiled as C. */
#ifndef TANDEM_TESTS_CAPI_IN_C_H
#define TANDEM_TESTS_CAPI_IN_C_H

#ifdef __cplusplus
extern "C" {
#endif

/* Publishes "a" [4, 3] and "b" [5], pushes version 7, changes "b", checks, pushes version 8, checks, closes. Returns NULL,
 * or what was not as it should be. */
const char* use_in_c(const char* engine, float* a, float* b);

#ifdef __cplusplus
}
#endif

#endif
