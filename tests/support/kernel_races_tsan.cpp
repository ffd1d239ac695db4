// What code that is compiled with -fsanitize=thread calls, for kernel_races.h: no thread sanitizer is linked.
#include "tests/support/kernel_races.h"

#define TANDEM_HERE __builtin_return_address(0)
using fibers::races::Kind;
using fibers::races::touched;

extern "C" {

void __tsan_init() {
    fibers::races::enable();
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define TANDEM_ACCESS(bytes)                          \
    void __tsan_read##bytes(void* at) {               \
        touched(at, bytes, Kind::read, TANDEM_HERE);  \
    }                                                 \
    void __tsan_write##bytes(void* at) {              \
        touched(at, bytes, Kind::write, TANDEM_HERE); \
    }                                                 \
    void __tsan_unaligned_read##bytes(void* at) {     \
        touched(at, bytes, Kind::read, TANDEM_HERE);  \
    }                                                 \
    void __tsan_unaligned_write##bytes(void* at) {    \
        touched(at, bytes, Kind::write, TANDEM_HERE); \
    }                                                 \
    void __tsan_volatile_read##bytes(void* at) {      \
        touched(at, bytes, Kind::read, TANDEM_HERE);  \
    }                                                 \
    void __tsan_volatile_write##bytes(void* at) {     \
        touched(at, bytes, Kind::write, TANDEM_HERE); \
    }
TANDEM_ACCESS(1)
TANDEM_ACCESS(2)
TANDEM_ACCESS(4)
TANDEM_ACCESS(8)
TANDEM_ACCESS(16)

void __tsan_read_range(void* at, std::size_t bytes) {
    touched(at, bytes, Kind::read, TANDEM_HERE);
}
void __tsan_write_range(void* at, std::size_t bytes) {
    touched(at, bytes, Kind::write, TANDEM_HERE);
}

#define TANDEM_FETCH(bits, type, name)                                            \
    type __tsan_atomic##bits##_fetch_##name(volatile type* at, type value, int) { \
        touched(const_cast<type*>(at), sizeof(type), Kind::atomic, TANDEM_HERE);  \
        return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                \
    }
#define TANDEM_COMPARE(bits, type, strength, weak)                                                         \
    int __tsan_atomic##bits##_compare_exchange_##strength(volatile type* at, type* expected, type value,   \
                                                          int, int) {                                      \
        touched(const_cast<type*>(at), sizeof(type), Kind::atomic, TANDEM_HERE);                           \
        return __atomic_compare_exchange_n(at, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }
// Nothing sees a load: C++ guards the variables of a function by them, kernels have none.
#define TANDEM_ATOMIC(bits, type)                                                \
    type __tsan_atomic##bits##_load(const volatile type* at, int) {              \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                            \
    }                                                                            \
    void __tsan_atomic##bits##_store(volatile type* at, type value, int) {       \
        touched(const_cast<type*>(at), sizeof(type), Kind::atomic, TANDEM_HERE); \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                           \
    }                                                                            \
    type __tsan_atomic##bits##_exchange(volatile type* at, type value, int) {    \
        touched(const_cast<type*>(at), sizeof(type), Kind::atomic, TANDEM_HERE); \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                 \
    }                                                                            \
    TANDEM_FETCH(bits, type, add)                                                \
    TANDEM_FETCH(bits, type, sub)                                                \
    TANDEM_FETCH(bits, type, and)                                                \
    TANDEM_FETCH(bits, type, or)                                                 \
    TANDEM_FETCH(bits, type, xor)                                                \
    TANDEM_COMPARE(bits, type, strong, false)                                    \
    TANDEM_COMPARE(bits, type, weak, true)
TANDEM_ATOMIC(8, char)
TANDEM_ATOMIC(16, short)
TANDEM_ATOMIC(32, int)
TANDEM_ATOMIC(64, long)

void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
