// A process of another user, as root can start one.
#pragma once

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace tandem::test {

inline constexpr uid_t kNobody = 65534;

// Runs the body in a process of another user; it ends with the body's value.
inline pid_t start_as_nobody(const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(99);
    try {
        ::_exit(body());
    } catch (...) {
        ::_exit(98);
    }
}

inline int exit_code_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tandem::test
