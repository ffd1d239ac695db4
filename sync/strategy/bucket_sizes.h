// Sizes of buckets, slots and pieces where none was chosen. A bucket's size is the user's, else the cost
// model's (cost/tune.h), else the mode's own (session/modes.cpp), else default_bucket_bytes().
#pragma once

#include <cstddef>

namespace tandem::sync {

// One instance of the last-level cache that CPU 0 uses, from the kernel; 32 MiB where that says nothing.
// (sysconf adds up all instances of some processors.)
std::size_t last_level_cache_bytes();

constexpr int kDefaultDepth = 3;
std::size_t default_bucket_bytes();

// A slot of staging for buckets of at most `used` bytes: whole pages, but no more than was asked for.
std::size_t slot_bytes(std::size_t used, std::size_t asked);

// A piece is what one checksum covers and what an engine's threads share a bucket by: several for each
// thread, and not so small that each costs.
constexpr std::size_t kLargestPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kLargestDeltaPieceBytes = std::size_t{256} << 10;  // of mode delta
std::size_t staged_piece_bytes(std::size_t bucket_bytes);
std::size_t direct_piece_bytes(std::size_t bucket_bytes);

}  // namespace tandem::sync
