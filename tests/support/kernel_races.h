// A racecheck and an initcheck for kernels that run on the host (kernels_on_host.h). Their sources are
// compiled with -fsanitize=thread, which calls __tsan_read4 and its like before each access to memory; those
// calls come here (kernel_races_tsan.cpp) instead of to the thread sanitizer, because the order between the
// threads of most kernels is simple enough to be known exactly, without vector clocks: blocks of a launch are
// never ordered, warps of a block by __syncthreads only, lanes of a warp by that and __syncwarp (shuffles and
// votes order no memory). Shared memory starts anew with each block.
//
// A copy ahead writes its target at any moment from its issue until its thread has waited for it: who touches the
// target meanwhile, even that thread, is reported.
//
// A race: two threads that are not ordered touch a byte, one of them writes it, not both by atomics. The same
// value is no excuse. Reads of shared or scratch memory that nothing has written are reported too. Where
// kernels are not instrumented nothing is seen and nothing reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/support/kernel_clocks.h"

namespace fibers::races {

// What the fibers do, told by their scheduler.
void begin_launch();
void begin_block(const std::byte* shared, std::size_t shared_bytes, std::size_t threads);
void block_synchronized();
std::uint32_t warp_synchronized();  // the warp's new phase
void resume(unsigned thread, std::uint32_t warp_phase, const std::byte* stack, std::size_t stack_bytes);
void pause();
bool found();              // anything, since begin_launch
std::string end_launch();  // what was found since begin_launch; empty: nothing

// Scratch memory, alone on its pages: as long as it is there, who reads what was not written is reported. The
// host's work on it; what host_reads finds is for its caller to throw, empty when all is well.
void begin_scratch(const void* memory, std::size_t bytes);
void end_scratch(const void* memory, std::size_t bytes);
void host_writes(const void* memory, std::size_t bytes);
std::string host_reads(const void* memory, std::size_t bytes);

void enable();  // called by instrumented code as it starts
enum class Kind { read, write, atomic };
void touched(const void* at, std::size_t bytes, Kind kind, const void* code);

// Sixteen bytes of shared memory that a copy writes at some moment from its beginning on: until the running
// thread ends it, whoever touches them is reported.
void copy_begins(const void* to, const void* code);
void copy_ends(const void* to, const void* code);

// The order that barriers of some threads of the block make, from `use_clocks` on: then shared memory is judged by
// it, global memory as ever. Of the running thread.
void use_clocks();
void release_into(Clock& to);  // what it has done and seen so far
void acquire(const Clock& from);
void fence_proxies();
std::uint16_t new_actor();
void copy_arrives(const void* to, const Actor& actor,
                  const void* code);  // the end of one that an actor writes
Clock seen_by_warp();                 // what all lanes of the running thread's have seen
void read_by(const Actor& actor, const void* at, std::size_t bytes, const Clock& seen, const void* code);
bool in_shared_memory(const void* at, std::size_t bytes);  // of the running block

}  // namespace fibers::races
