// A prompt that takes seconds, and everybody else. ATOM#1835, burn-lm#59, mlx-serve#205, imp#1643: one long
// prompt stopped all others until its prefill had ended, also when nobody waited for it any more.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;

constexpr int kLong = 60'000;

std::string question(int tokens) {
    json ids = json::array();
    for (int i = 0; i < tokens; ++i) ids.push_back(i % 251);
    return json{{"input_ids", ids}, {"sampling_params", {{"max_new_tokens", 1}}}}.dump();
}

// A client that asks and does not wait.
class Impatient {
  public:
    Impatient(const std::string& url, const std::string& body)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const std::string authority = url.substr(url.find("://") + 3);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port =
            htons(static_cast<std::uint16_t>(std::stoi(authority.substr(authority.rfind(':') + 1))));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
            throw std::runtime_error("nobody listens at " + url);
        const std::string request = "POST /generate HTTP/1.1\r\nHost: " + authority +
                                    "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
        for (std::size_t sent = 0; sent < request.size();) {
            const ssize_t n = ::send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
            if (n <= 0) throw std::runtime_error("the server does not read the request");
            sent += static_cast<std::size_t>(n);
        }
    }
    ~Impatient() { leave(); }
    void leave() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

  private:
    int fd_;
};

class LongPrompt : public Case {
  protected:
    LongPrompt() {
        CaseModel model;
        model.config = {{"max_position_embeddings", 65536}};
        write_qwen2(path("model"), model);
    }
    json info() const { return ask(url_, "GET", "/server_info").json(); }
    int prefilled() const { return info()["prefill_tokens"]; }
    json wait_for(const std::function<bool(const json&)>& what) const {
        for (int i = 0; i < 3000; ++i) {
            const json now = info();
            if (what(now)) return now;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        throw std::runtime_error("it does not come to that: " + info().dump());
    }
    std::string url_;
};

TEST_F(LongPrompt, StopsNobodyAndEndsWithItsClient) {
    engine::Program engine(serve("model", {"--kv-tokens", "100000", "--threads", "1"}));
    url_ = engine.url();
    ASSERT_FALSE(url_.empty()) << engine.output();
    Impatient client(url_, question(kLong));
    wait_for([](const json& now) { return now["prefill_tokens"] > 0; });

    for (int i = 0; i < 5; ++i) EXPECT_EQ(ask(url_, "POST", "/generate", question(1)).status, 200);
    EXPECT_LT(prefilled(), kLong) << "small requests are answered while it is in work";

    const std::string in_place = R"({"mode": "in_place"})";
    EXPECT_EQ(ask(url_, "POST", "/pause_generation", in_place).status, 200);
    const int done = prefilled();
    EXPECT_LT(done, kLong) << "a pause does not wait for its end";
    EXPECT_EQ(ask(url_, "POST", "/continue_generation", "{}").status, 200);
    wait_for([&](const json& now) { return now["prefill_tokens"] > done; });

    client.leave();
    const json after = wait_for([](const json& now) { return now["running"] == 0; });
    EXPECT_LT(after["prefill_tokens"], kLong) << "it ends when its client has left";
    EXPECT_EQ(after["pages_free"], after["pages_total"]);
}

}  // namespace
}  // namespace tandem::test
