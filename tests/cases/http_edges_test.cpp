// HTTP that other servers take, from proxies, browsers' cookies and clients that compress.
#include <optional>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kOneToken = R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}})";

class HttpEdges : public Case {
  protected:
    HttpEdges() {
        write_qwen2(path("model"));
        engine_.emplace(serve("model", {"--threads", "1", "--kv-tokens", "1024"}));
        url_ = engine_->url();
    }
    HttpAnswer get(const std::string& path, const std::vector<std::string>& headers = {}) const {
        return ask(url_, "GET", path, "", headers);
    }
    HttpAnswer generate(const std::string& body, const std::vector<std::string>& headers = {}) const {
        return ask(url_, "POST", "/generate", body, headers);
    }

    std::optional<engine::Program> engine_;
    std::string url_;
};

TEST_F(HttpEdges, LargeHeaders) {
    EXPECT_EQ(get("/health", {"Cookie: " + std::string(9000, 'a')}).status, 200);
    EXPECT_EQ(get("/health", {"Cookie: " + std::string(60000, 'a')}).status, 200);
    const HttpAnswer refused = get("/health", {"Cookie: " + std::string(100000, 'a')});
    EXPECT_EQ(refused.status, 431);
    EXPECT_THAT(refused.body, HasSubstr("65536 bytes"));
}

TEST_F(HttpEdges, TargetsOfProxiesAndSlashes) {
    for (const std::string& path :
         {url_ + "/health", std::string("/health/"), url_ + "/health/", std::string("/health?a=b")})
        EXPECT_EQ(get(path).status, 200) << path;
    EXPECT_EQ(ask(url_, "POST", "/generate/", kOneToken).status, 200);
    EXPECT_EQ(ask(url_, "HEAD", "/health").status, 200);
    EXPECT_EQ(ask(url_, "HEAD", "/model_info").body, "");
    EXPECT_EQ(get("http://evil.example/health").status, 403);
}

TEST_F(HttpEdges, EncodingsThatAreNotRead) {
    const HttpAnswer refused = generate("\x1f\x8b\x08", {"Content-Encoding: gzip"});
    EXPECT_EQ(refused.status, 415);
    EXPECT_THAT(refused.body, HasSubstr("Content-Encoding gzip"));
    EXPECT_EQ(generate(kOneToken, {"Content-Encoding: identity"}).status, 200);
    EXPECT_EQ(ask(url_, "GET", "/health", "", {"Transfer-Encoding: gzip, chunked"}).status, 501);
}

TEST_F(HttpEdges, JsonErrorsSayWhere) {
    const auto place = [&](const std::string& body, const std::string& where) {
        const HttpAnswer refused = generate(body);
        EXPECT_EQ(refused.status, 400);
        EXPECT_THAT(refused.body, AllOf(HasSubstr("not valid JSON"), HasSubstr(where))) << body;
    };
    place("{\"text\": \"\\ud800\"}", "line 1, column 17");
    place("{\"input_ids\": [1],\n\"rid\": \"a\",\n}", "line 3, column 1");
    place("{\"input_ids\": [1] \"rid\": 1}", "line 1, column 23");
    place("{'input_ids': [1]}", "line 1, column 2");
    place("{\"input_ids\": [NaN]}", "line 1, column 16");
}

}  // namespace
}  // namespace tandem::test
