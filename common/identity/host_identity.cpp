#include "common/identity/host_identity.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>

namespace tandem {

std::string host_identity() {
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
        struct stat file {};
        if (::stat(space, &file) == 0) id += fmt::format("/{}", file.st_ino);
    }
    return id;
}

}  // namespace tandem
