// What a fuzz target provides: libFuzzer's entry, and inputs to begin with. The same entry is run by
// replay.cpp in ordinary tests, so that a target never rots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Must return on every input; whatever an input is refused with is caught inside, and anything else is a bug.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Small valid inputs, and near ones.
std::vector<std::string> fuzz_seeds();
