// Pushes into stand-ins for SGLang, of each generation.
#pragma once

#include <string>
#include <vector>

#include "tests/support/sglang_stand_in.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {

using test::SglangStandIn;

// Without weight-update sessions, with them.
inline const auto kSglangGenerations = testing::Values("0.5.15.post1", "0.5.23");

class SglangPush : public Push, public testing::WithParamInterface<std::string> {
  protected:
    SglangStandIn::Options started(const std::string& model) const {
        return {.model = model, .version = GetParam()};
    }

    // The next push makes the server whole again.
    void expect_heals(SglangStandIn& server) {
        server.mend();
        const std::string next = model("healed", 5);
        const auto outcomes = push(next, {server.url()});
        EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_FALSE(server.paused());
        EXPECT_EQ(server.weight_version(), "1");
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_THAT(server.violations(), testing::IsEmpty());
        EXPECT_THAT(staged(), testing::IsEmpty());
    }

    static std::vector<std::string> posts(const SglangStandIn& server) {
        std::vector<std::string> posts;
        for (const std::string& call : server.calls())
            if (call.starts_with("POST ")) posts.push_back(call.substr(5));
        return posts;
    }
};

}  // namespace tandem::sync
