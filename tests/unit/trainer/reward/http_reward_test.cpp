// A reward server, well and badly behaved: what it is sent, what is taken from it, what is tried again.
#include "trainer/reward/http_reward.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/http/server.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using namespace std::chrono_literals;

// Answers with `behave`, which gets the number of the request and the scores that would be right: the length
// of each completion.
struct FakeServer {
    using Behave = std::function<void(int request, json scores, const http::Responder&)>;
    explicit FakeServer(Behave behave)
        : server({"127.0.0.1:0", std::size_t{1} << 20, std::chrono::milliseconds(5000)}) {
        server.route("POST", "/score", [this, behave](const http::Request& request, http::Responder respond) {
            json scores = json::array();
            {
                const std::lock_guard guard(lock);
                bodies.push_back(json::parse(request.body));
                for (const json& sample : bodies.back()["samples"])
                    scores.push_back(sample["completion"].get<std::string>().size());
            }
            behave(++requests, std::move(scores), respond);
        });
        server.start();
    }
    ~FakeServer() { server.stop(); }
    std::string url() const { return server.url() + "/score"; }

    std::mutex lock;
    std::vector<json> bodies;
    std::atomic<int> requests{0};
    http::Server server;
};

void good(int, json scores, const http::Responder& respond) {
    respond.send(200, json{{"scores", std::move(scores)}});
}

RewardOptions options_for(const std::string& url) {
    RewardOptions options;
    options.rule = url;
    options.batch = 4;
    options.connections = 3;
    options.timeout = 2000ms;
    options.deadline = 5000ms;
    return options;
}

std::vector<AnsweredPrompt> samples(std::size_t count) {
    std::vector<AnsweredPrompt> result;
    for (std::size_t i = 0; i < count; ++i)
        result.push_back({"prompt " + std::to_string(i), std::string(i, 'x'), "answer", i % 2 == 1});
    return result;
}

std::vector<double> scores_from(const RewardOptions& options, std::size_t count = 10) {
    return make_reward(options)->scores(samples(count));
}

template <typename Problem>
std::string error_of(const RewardOptions& options, std::size_t count = 10) {
    try {
        scores_from(options, count);
    } catch (const Problem& error) {
        return error.what();
    }
    return "accepted";
}

TEST(HttpReward, AsksInBatchesAndKeepsTheOrder) {
    FakeServer server(good);
    const auto scores = scores_from(options_for(server.url()));
    EXPECT_THAT(scores, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(server.requests, 3);
    std::size_t sent = 0;
    for (const json& body : server.bodies) {
        EXPECT_EQ(body.size(), 1u);
        sent += body["samples"].size();
        EXPECT_LE(body["samples"].size(), 4u);
    }
    EXPECT_EQ(sent, 10u);
    for (const json& body : server.bodies) {
        if (body["samples"][0]["prompt"] != "prompt 0") continue;
        EXPECT_EQ(
            body["samples"][1],
            (json{{"prompt", "prompt 1"}, {"completion", "x"}, {"answer", "answer"}, {"truncated", true}}));
    }
    EXPECT_TRUE(scores_from(options_for(server.url()), 0).empty());
}

TEST(HttpReward, SendsTextThatIsNoUtf8) {
    FakeServer server(good);
    const std::vector<AnsweredPrompt> broken = {{"p", "\xff\xc3", "a", false}};
    EXPECT_EQ(make_reward(options_for(server.url()))->scores(broken).size(), 1u);
    EXPECT_EQ(server.bodies[0]["samples"][0]["completion"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(HttpReward, WaitsForASlowServer) {
    FakeServer server([](int, json scores, const http::Responder& respond) {
        std::thread([scores = std::move(scores), respond] {
            std::this_thread::sleep_for(200ms);
            respond.send(200, json{{"scores", scores}});
        }).detach();
    });
    EXPECT_EQ(scores_from(options_for(server.url())).size(), 10u);
}

TEST(HttpReward, TriesAgainWhatMayPass) {
    for (const int status : {500, 502, 503, 429, 408}) {
        FakeServer server([status](int request, json scores, const http::Responder& respond) {
            if (request <= 2) return respond.send(status, json{{"message", "busy"}});
            good(request, std::move(scores), respond);
        });
        EXPECT_EQ(scores_from(options_for(server.url())).size(), 10u) << status;
        EXPECT_EQ(server.requests, 5) << status;
    }
}

TEST(HttpReward, TriesAgainWhenARequestTakesTooLong) {
    FakeServer server([](int request, json scores, const http::Responder& respond) {
        static std::vector<http::Responder> never_answered;
        if (request == 1) return never_answered.push_back(respond);
        good(request, std::move(scores), respond);
    });
    RewardOptions options = options_for(server.url());
    options.timeout = 300ms;
    EXPECT_EQ(scores_from(options, 3).size(), 3u);
    EXPECT_EQ(server.requests, 2);
}

TEST(HttpReward, TheDeadlineEndsTheTries) {
    FakeServer server([](int, json, const http::Responder& respond) {
        respond.send(500, json{{"message", "out of memory"}});
    });
    RewardOptions options = options_for(server.url());
    options.deadline = 600ms;
    const std::string message = error_of<DeadlineExceeded>(options);
    EXPECT_THAT(message, HasSubstr(server.url()));
    EXPECT_THAT(message, HasSubstr("tries; last: HTTP 500"));
    EXPECT_THAT(message, HasSubstr("out of memory"));
}

TEST(HttpReward, OtherStatusesEndAtOnce) {
    FakeServer server([](int, json, const http::Responder& respond) {
        respond.send(401, json{{"message", "no token"}});
    });
    const std::string message = error_of<TransportError>(options_for(server.url()), 3);
    EXPECT_THAT(message, HasSubstr(server.url()));
    EXPECT_THAT(message, HasSubstr("HTTP 401"));
    EXPECT_EQ(server.requests, 1);
}

TEST(HttpReward, RefusesAnswersThatBreakTheContract) {
    const auto refused = [](const std::string& answer) {
        FakeServer server([&](int, json, const http::Responder& respond) { respond.send(200, answer); });
        const std::string message = error_of<ProtocolError>(options_for(server.url()), 2);
        EXPECT_THAT(message, HasSubstr(server.url()));
        EXPECT_EQ(server.requests, 1);
        return message;
    };
    EXPECT_THAT(refused("<html>"), HasSubstr("is not JSON: <html>"));
    EXPECT_THAT(refused("[1, 2]"), HasSubstr("no list \"scores\""));
    EXPECT_THAT(refused("{\"score\": [1, 2]}"), HasSubstr("no list \"scores\""));
    EXPECT_THAT(refused("{\"scores\": 1}"), HasSubstr("no list \"scores\""));
    EXPECT_THAT(refused("{\"scores\": [1]}"), HasSubstr("\"scores\" has 1 numbers for 2 samples"));
    EXPECT_THAT(refused("{\"scores\": [1, 2, 3]}"), HasSubstr("3 numbers for 2 samples"));
    EXPECT_THAT(refused("{\"scores\": [1, \"good\"]}"), HasSubstr("scores[1] is \"good\", not a number"));
    EXPECT_THAT(refused("{\"scores\": [nan, 1]}"), HasSubstr("is not JSON"));
    EXPECT_THAT(refused("{\"scores\": [\"NaN\", 1]}"), HasSubstr("scores[0] is \"NaN\", not a number"));
}

// For the step to tell by sample: Python writes NaN and Infinity, most others null.
TEST(HttpReward, HandsOnWhatIsNotFinite) {
    for (const char* word : {"null", "NaN", "Infinity", "-Infinity", "1e39"}) {
        SCOPED_TRACE(word);
        FakeServer server([&](int, json, const http::Responder& respond) {
            respond.send(
                200, "{\"note\": \"a \\\"NaN\\\" of mine\", \"scores\": [" + std::string(word) + ", 0.5]}");
        });
        const std::vector<AnsweredPrompt> two(2);
        const auto scores = HttpReward(options_for(server.url())).scores(two);
        ASSERT_EQ(scores.size(), 2u);
        EXPECT_FALSE(std::isfinite(static_cast<float>(scores[0])));
        EXPECT_EQ(scores[1], 0.5);
    }
}

TEST(HttpReward, NamesAServerThatIsNotThere) {
    std::string url;
    { url = FakeServer(good).url(); }
    RewardOptions options = options_for(url);
    options.deadline = 400ms;
    const std::string message = error_of<DeadlineExceeded>(options);
    EXPECT_THAT(message, HasSubstr(url));
    EXPECT_THAT(message, HasSubstr("refused"));
}

}  // namespace
}  // namespace tandem::trainer
