// What the files of the host's instructions say to each other and to the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/support/kernel_races.h"

namespace fibers {

void begin_copies(std::size_t threads);  // of a block: none are on their way
void end_copies();                       // the running thread has ended: throws where some still are

void begin_barriers();  // of a block: named ones and mbarriers
void end_barriers();    // of a block that has ended well

void begin_products();               // of a block: none of warpgroups are under way
void end_products();                 // of a block that has ended well: throws where some still are
void begin_bulk(std::size_t block);  // none are on their way; the block's number
void end_bulk();                     // of a block that has ended well: throws where some still are
bool end_one_bulk();                 // one, any, arrives; false: there is none
void check_mbarrier(std::uintptr_t mbarrier, const void* site);
races::Actor actor_of(std::uintptr_t mbarrier);  // who writes what comes in its present phase
void bytes_arrive(std::uintptr_t mbarrier, std::size_t bytes, const races::Actor& actor);

// What a thread may wait for, and what that is called. A block in which all wait is told.
struct Until {
    std::function<bool()> over;
    std::function<std::string()> what;
};
void wait_until(const Until& until);

// Throw, with the place in the kernel.
void check_multiple_of_16(const void* address, const char* what, const void* site);
void check_shared_row(const void* row, const char* what, const void* site);  // 16 bytes of shared memory

}  // namespace fibers
