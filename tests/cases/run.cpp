#include "tests/cases/run.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace tandem::test {

namespace {

using nlohmann::json;

constexpr const char* kRun = R"([run]
name = "run"
[sft]
steps = 0
[grpo]
steps = 3
prompts = 4
samples = 4
updates = 1
max_new_tokens = 6
evaluate_every = 0
[data]
reward = "numeric"
held_out = 8
)";

int connected(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
        throw std::runtime_error("no address for " + host);
    const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int result = ::connect(fd, found->ai_addr, found->ai_addrlen);
    ::freeaddrinfo(found);
    if (result == 0) return fd;
    ::close(fd);
    throw std::runtime_error("nobody listens at " + host + ":" + port);
}

}  // namespace

Case::Case() {
    std::string lines;
    for (int a = 0; a < 6; ++a) {
        for (int b = 0; b < 6; ++b) {
            const std::string sum = std::to_string(a) + "+" + std::to_string(b) + "=";
            lines += json{{"prompt", sum}, {"answer", a + b}}.dump() + "\n";
        }
    }
    write_text(path("prompts.jsonl"), lines);
    write_text(path("run.toml"), kRun);
}

std::vector<std::string> Case::train(const std::vector<std::string>& more,
                                     const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {"tandem-train", path("run.toml")};
    std::vector<std::string> values = {"run.output=" + path("runs"), "model.path=" + path("model"),
                                       "data.prompts=" + path("prompts.jsonl")};
    values.insert(values.end(), more.begin(), more.end());
    for (const std::string& value : values) command.insert(command.end(), {"--set", value});
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
}

std::vector<std::string> Case::serve(const std::string& model, const std::vector<std::string>& more) const {
    std::vector<std::string> command = {"serve", "--model", path(model), "--listen", "127.0.0.1:0"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

Case::Ended Case::ended(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment) {
    Program program(command, environment);
    Ended result;
    result.code = program.wait();
    result.out = program.out();
    result.err = program.err();
    return result;
}

HttpAnswer ask(const std::string& url, const std::string& method, const std::string& path,
               const std::string& body, const std::vector<std::string>& headers) {
    // http://host:port or http://[v6]:port
    std::string authority = url.substr(url.find("://") + 3);
    authority = authority.substr(0, authority.find('/'));
    const std::size_t colon = authority.rfind(':');
    std::string host = authority.substr(0, colon);
    if (host.front() == '[') host = host.substr(1, host.size() - 2);
    const int fd = connected(host, authority.substr(colon + 1));

    std::string request =
        method + " " + path + " HTTP/1.1\r\nHost: " + authority + "\r\nConnection: close\r\n";
    for (const std::string& header : headers) request += header + "\r\n";
    if (!body.empty() || method == "POST" || method == "PUT")
        request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    request += "\r\n" + body;
    std::string answer;
    // A server that refuses a header does not read what follows: what it says is still there to be read.
    (void)::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char block[4096];
    for (ssize_t n; (n = ::recv(fd, block, sizeof(block), 0)) > 0;)
        answer.append(block, static_cast<std::size_t>(n));
    ::close(fd);

    HttpAnswer result;
    if (answer.size() > 12) result.status = std::stoi(answer.substr(9, 3));
    const std::size_t end = answer.find("\r\n\r\n");
    if (end != std::string::npos) result.body = answer.substr(end + 4);
    return result;
}

}  // namespace tandem::test
