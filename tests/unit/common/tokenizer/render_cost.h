// What a template takes, read and rendered in a process of its own: processor time and memory, whatever the machine
// does beside it.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <string>

#include "common/error.h"
#include "common/tokenizer/jinja/template.h"

namespace tandem::tokenizer::jinja {

struct RenderCost {
    std::string error;  // none: ""; also where the process was killed
    double seconds = 0;
    double mebibytes = 0;  // at the peak, above what the process began with
};

inline double thread_seconds_now() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline double peak_mebibytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Its process is killed after so many seconds of processor time.
inline RenderCost cost_of(const std::string& source, const Limits& limits, unsigned most_seconds) {
    int ends[2];
    if (pipe(ends) != 0) throw Error("no pipe");
    const pid_t child = fork();
    if (child == 0) {
        const rlimit most{most_seconds, most_seconds};
        setrlimit(RLIMIT_CPU, &most);
        const double begin = thread_seconds_now(), before = peak_mebibytes();
        std::string error;
        try {
            Template(source).render({}, limits);
        } catch (const std::exception& failure) {
            error = failure.what();
        }
        const std::string line = std::to_string(thread_seconds_now() - begin) + " " +
                                 std::to_string(peak_mebibytes() - before) + " " + error;
        const bool written = write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size());
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    std::string line;
    char buffer[4096];
    for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;)
        line.append(buffer, static_cast<std::size_t>(size));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return {"killed by signal " + std::to_string(WTERMSIG(status))};
    const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
    return {line.substr(second + 1), std::stod(line), std::stod(line.substr(first))};
}

}  // namespace tandem::tokenizer::jinja
