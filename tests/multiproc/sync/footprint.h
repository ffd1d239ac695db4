// What a process of this machine holds: memory, file descriptors, memory that it shares.
#pragma once

#include <string>
#include <vector>

namespace tandem::sync {

struct Footprint {
    long descriptors = 0;
    long resident_kib = 0;   // all of it
    long anonymous_kib = 0;  // the process's own
    long shared_kib = 0;     // of the memory that this project shares between processes, whoever touched it
};

Footprint footprint(const std::string& pid);  // or "self"

// How `now` is larger than `before`; empty when it is not.
std::string growth(const Footprint& before, const Footprint& now);

// Names of this project's shared memory that a process maps, one for each piece: "job", "staging".
std::vector<std::string> shared_memory_of(int pid);
// Sockets that a process has open.
int sockets_of(int pid);

}  // namespace tandem::sync
