#include "tests/multiproc/app/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "common/error.h"

namespace tandem::test {

namespace fs = std::filesystem;

Folder::Folder() {
    std::string name = (fs::temp_directory_path() / "tandem_app_XXXXXX").string();
    path_ = mkdtemp(name.data());
}

Folder::~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::string read_file(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<nlohmann::json> timeless_metrics(const std::string& run) {
    std::vector<nlohmann::json> lines;
    std::istringstream in(read_file(run + "/metrics.jsonl"));
    for (std::string text; std::getline(in, text);) {
        nlohmann::json line = nlohmann::json::parse(text);
        for (const char* key : {"ms", "generate_ms", "reward_ms", "train_ms", "sync_ms", "memory_peak_bytes",
                                "generate_tokens_per_second", "train_tokens_per_second", "mfu"})
            line.erase(key);
        lines.push_back(std::move(line));
    }
    return lines;
}

Program::Program(const std::vector<std::string>& command, const std::vector<std::string>& environment)
    : out_(folder_ / "out"), err_(folder_ / "err") {
    const auto append_to = [](const std::string& file) {
        return FileDescriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    };
    const FileDescriptor out = append_to(out_), err = append_to(err_);
    ChildOptions options{.command = command,
                         .environment = std::vector<std::string>(),
                         .descriptors = {{out.get(), STDOUT_FILENO}, {err.get(), STDERR_FILENO}},
                         .dies_with_thread = false};
    options.command[0].insert(0, TANDEM_BIN_DIR "/");
    for (char** entry = environ; *entry != nullptr; ++entry) options.environment->emplace_back(*entry);
    options.environment->insert(options.environment->end(), environment.begin(), environment.end());
    child_.emplace(options);
}

int Program::wait(std::chrono::seconds limit) {
    const auto end = child_->wait(Deadline::after(limit));
    EXPECT_TRUE(end) << "still running; stderr:\n" << err();
    if (!end) return -1000;
    return end->signal != 0 ? -end->signal : end->exit_code;
}

std::map<std::string, pid_t> Program::children() const {
    std::map<std::string, pid_t> result;
    std::string all;  // each thread has children of its own
    for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid()) + "/task")) {
        all += read_file(task.path() / "children");
    }
    std::istringstream pids(all);
    for (pid_t child; pids >> child;) {
        const std::string folder = "/proc/" + std::to_string(child);
        if (read_file(folder + "/cmdline").find("tandem-engine") != std::string::npos)
            result["engine"] = child;
        const std::string environment = '\0' + read_file(folder + "/environ");
        const std::size_t at = environment.find(std::string("\0RANK=", 6));
        if (at != std::string::npos) result["rank " + std::string(environment.c_str() + at + 6)] = child;
    }
    return result;
}

bool alive(pid_t pid) {
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t end = stat.rfind(')');
    return end != std::string::npos && stat.compare(end, 3, ") Z") != 0;
}

bool reinforces(const Folder& folder) {
    return eventually([&] {
        const std::string metrics = read_file(folder / "tiny.partial/metrics.jsonl");
        return metrics.find("\"grpo\",\"step\":3") != std::string::npos;
    });
}

void expect_all_end(const std::map<std::string, pid_t>& processes, std::chrono::seconds limit) {
    for (const auto& [name, pid] : processes) {
        EXPECT_TRUE(eventually([pid = pid] { return !alive(pid); }, limit)) << name << " is left";
    }
}

std::vector<std::string> tiny_run(const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> command = {"tandem-train",
                                        TANDEM_SOURCE_DIR "/examples/quickstart/quickstart.toml"};
    std::vector<std::string> values = {"output=" + output, "name=tiny",   "sft.steps=10",    "grpo.steps=10",
                                       "grpo.prompts=8",   "held_out=64", "evaluate_every=0"};
    values.insert(values.end(), more.begin(), more.end());
    for (const std::string& value : values) command.insert(command.end(), {"--set", value});
    return command;
}

}  // namespace tandem::test
