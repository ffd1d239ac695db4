// --listen with an IPv6 address or a name of several: what is printed is a URL that clients take (sglang#19981, trl#6587).
#include <utility>

#include "tests/cases/run.h"
#include "tests/support/ipv6.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Listening : public Case {
  protected:
    Listening() { write_qwen2(path("model")); }
    std::vector<std::string> at(const std::string& listen, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> command = {"serve", "--model",      path("model"), "--listen",
                                            listen,  "--threads",    "1",           "--kv-tokens",
                                            "1024",  "--ready-file", path("ready")};
        command.insert(command.end(), more.begin(), more.end());
        return command;
    }
};

TEST_F(Listening, AnIpv6AddressInBrackets) {
    if (!has_ipv6()) {  // then that is said, with the address as it was written
        engine::Program engine(at("[::1]:0"));
        EXPECT_EQ(engine.wait(), 2);
        EXPECT_THAT(engine.output(), HasSubstr("address [::1]:0 cannot be used"));
        return;
    }
    engine::Program engine(at("[::1]:0", {"--data-listen", "[::1]:0", "--api-key", "word"}));
    const std::string url = engine.url();
    EXPECT_THAT(url, StartsWith("http://[::1]:")) << engine.output();
    EXPECT_EQ(ask(url, "GET", "/health").status, 200);
    EXPECT_TRUE(eventually([&] { return read_file(path("ready")) == url + "\n"; }));
    const json info = ask(url, "GET", "/model_info", "", {"x-api-key: word"}).json();
    const std::string server = "tandem://" + url.substr(std::string("http://").size());
    for (const std::string& to :
         {server, server + "?transport=tcp", "tcp://[::1]:" + info.at("tandem").at("data_port").dump()}) {
        const Ended pushed =
            ended({"tandem-sync", "push", "--model", path("model"), "--to", to}, {"TANDEM_API_KEY=word"});
        EXPECT_EQ(pushed.code, 0) << pushed.text();
    }
}

TEST_F(Listening, WithoutBracketsTheRightFormIsNamed) {
    for (const auto& [option, command] :
         {std::pair{"--listen", at("::1:30000")},
          std::pair{"--data-listen", at("127.0.0.1:0", {"--data-listen", "::1:30000"})}}) {
        engine::Program engine(command);
        EXPECT_EQ(engine.wait(), 2);
        EXPECT_THAT(engine.output(), AllOf(HasSubstr(option), HasSubstr("write [::1]:30000")));
    }
    for (const char* url : {"tandem://::1:30000", "tcp://::1:30000"}) {
        const Ended pushed = ended({"tandem-sync", "push", "--model", path("model"), "--to", url});
        EXPECT_EQ(pushed.code, 2) << pushed.text();
        EXPECT_THAT(pushed.text(), HasSubstr("write [::1]:30000"));
    }
    const Ended run = ended(train({"engine.url=tandem://::1:30000"}));
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.text(), HasSubstr("write [::1]:30000"));
}

TEST_F(Listening, LocalhostIsBothLoopbacks) {
    engine::Program engine(at("localhost:0"));
    const std::string url = engine.url();
    ASSERT_THAT(url, StartsWith("http://localhost:")) << engine.output();
    const std::string port = url.substr(url.rfind(':'));
    EXPECT_EQ(ask("http://127.0.0.1" + port, "GET", "/health").status, 200);
    if (has_ipv6()) {
        EXPECT_EQ(ask("http://[::1]" + port, "GET", "/health").status, 200);
    }
    engine::Program second(at("localhost" + port));
    EXPECT_EQ(second.wait(), 2);
    EXPECT_THAT(second.output(), HasSubstr("localhost" + port + " is in use"));
}

}  // namespace
}  // namespace tandem::test
