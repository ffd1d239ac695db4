// Marks a function that a kernel and its CPU twin share: index and softmax arithmetic that CPU tests cover.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__
#else
#define TANDEM_HD
#endif
