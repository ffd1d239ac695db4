// From one stack to another, without the system calls of swapcontext (which keep signal masks): what the
// called function's caller expects to be kept is kept. x86-64.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace fibers {

// A flow of control that is not running.
struct Flow {
    void* top = nullptr;  // of its stack
    const void* stack = nullptr;
    std::size_t stack_bytes = 0;
};

// `run`, which must not return, on a stack of its own.
Flow new_flow(std::byte* stack, std::size_t bytes, void (*run)());
extern "C" void tandem_switch_stacks(void** top, void* to);

// `self` stops here until another flow goes on with it. `ends`: it never will.
inline void go_on(Flow& self, Flow& other, [[maybe_unused]] bool ends = false) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(ends ? nullptr : &fake, other.stack, other.stack_bytes);
#endif
    tandem_switch_stacks(&self.top, other.top);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// The first thing that a new flow does; `from` is who went on with it.
inline void arrived([[maybe_unused]] Flow& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &from.stack, &from.stack_bytes);
#endif
}

}  // namespace fibers
