// The border between the library and its caller: exceptions become a status and the thread's last error.
#pragma once

#include <exception>
#include <string>

#include "sync/capi/tandem_sync.h"

namespace tandem::sync::capi {

struct Failure {
    int status = TD_OK;
    int rank = -1;
    int bucket = -1;
    std::string phase;
    std::string peer;
    std::string message;
};

Failure to_failure(const std::exception& error);
int remember(Failure failure) noexcept;  // as this thread's last error; returns its status
void forget() noexcept;

// Runs `body`, and lets nothing out.
template <typename Body>
int guarded(const Body& body) noexcept {
    forget();
    try {
        body();
        return TD_OK;
    } catch (const std::exception& error) {
        return remember(to_failure(error));
    } catch (...) {
        return remember({TD_INTERNAL, -1, -1, "", "", "an unknown error"});
    }
}

// The same, of a struct that its caller may know a longer or a shorter form of: `size` bytes of it are read.
template <typename T>
T read_struct(const T* from, const char* what);
template <typename T>
void write_struct(T* to, const T& value, const char* what);

}  // namespace tandem::sync::capi

#include "sync/capi/structs.inl"
