// A hash of one number.
#pragma once

#include <cstdint>

namespace tandem {

// The finaliser of splitmix64: a bijection that spreads every input bit, so that consecutive numbers have
// nothing in common.
constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

}  // namespace tandem
