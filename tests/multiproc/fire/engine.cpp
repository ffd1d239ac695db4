#include "tests/multiproc/fire/engine.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "common/error.h"
#include "common/http/client.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::fire {

Engine::Engine(Proxy& proxy) : proxy_(proxy) {
    engine::write_tiny_model(directory_.path(), engine::tiny_config(), 1);
    std::filesystem::remove(directory_.file("model.safetensors"));
    start("127.0.0.1:0");
}

void Engine::start(const std::string& listen) {
    const std::string ready = directory_.file("ready");
    std::filesystem::remove(ready);
    const FileDescriptor log_file(
        ::open(directory_.file("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    child_.reset();
    child_ = std::make_unique<ChildProcess>(
        ChildOptions{.command = {TANDEM_BIN_DIR "/tandem-engine", "serve", "--model", directory_.path(),
                                 "--listen", listen, "--load-format", "dummy", "--dtype", "float32",
                                 "--threads", "1", "--ready-file", ready},
                     .descriptors = {{log_file.get(), STDOUT_FILENO}, {log_file.get(), STDERR_FILENO}},
                     .group = 0});
    const Deadline deadline = Deadline::after_ms(20'000);
    while (!std::filesystem::exists(ready)) {
        require(!deadline.passed() && running(), "the engine does not start: {}", log());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::ifstream file(ready);
    std::getline(file, url_);
    http::Client client(url_);
    proxy_.forward_to(client.get_json("/model_info", deadline).at("tandem").at("receiver"));
}

void Engine::signal(int number) const {
    child_->signal(number);
}

int Engine::wait() const {
    const auto end = child_->wait(Deadline::after_ms(20'000));
    if (!end) return -1;
    return end->signal != 0 ? 128 + end->signal : end->exit_code;
}

void Engine::kill_and_restart() {
    signal(SIGKILL);
    wait();
    start(url_.substr(url_.find("//") + 2));
}

int Engine::terminate() {
    signal(SIGTERM);
    const int code = wait();
    child_.reset();
    return code;
}

std::string Engine::log() const {
    std::ifstream file(directory_.file("log"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace tandem::fire
