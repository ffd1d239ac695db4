#include "tests/support/fiber_switch.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

asm(R"(
    .text
    .globl tandem_switch_stacks
    .type tandem_switch_stacks, @function
tandem_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tandem_switch_stacks, . - tandem_switch_stacks
)");

namespace fibers {

Flow new_flow(std::byte* stack, std::size_t bytes, void (*run)()) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, bytes);  // a flow that never returned left marks there
#endif
    const auto end = reinterpret_cast<std::uintptr_t>(stack + bytes) / 16 * 16;
    auto* const words = reinterpret_cast<void**>(end);
    words[-1] = nullptr;                       // where a caller's return address would be: at `run`'s first
    words[-2] = reinterpret_cast<void*>(run);  // instruction the stack is 8 bytes off a multiple of 16
    for (int i = 3; i <= 8; ++i) words[-i] = nullptr;
    return {words - 8, stack, bytes};
}

}  // namespace fibers
