// What a call throws says, or nothing.
#pragma once

#include <exception>
#include <string>

namespace tandem::test {

template <typename Body>
std::string error_of(Body&& body) {
    try {
        body();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

}  // namespace tandem::test
