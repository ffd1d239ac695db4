#include "common/http/access.h"

#include <gtest/gtest.h>

namespace tandem::http {
namespace {

int status(const AccessRules& rules, Access needed, const Credentials& given) {
    const auto refused = refuse_access(rules, needed, given);
    return refused ? refused->status : 200;
}
int with_key(const AccessRules& rules, Access needed, const std::string& key) {
    const std::string bearer = "Bearer " + key;
    const int by_header = status(rules, needed, {.x_api_key = key});
    EXPECT_EQ(status(rules, needed, {.authorization = bearer}), by_header);
    return by_header;
}

TEST(Access, EveryRuleWithEveryKey) {
    const AccessRules none, user{"u", ""}, admin{"", "a"}, both{"u", "a"};
    for (const std::string key : {"", "u", "a", "ua", "x"}) {
        for (const auto& rules : {none, user, admin, both})
            EXPECT_EQ(with_key(rules, Access::open, key), 200);
        EXPECT_EQ(with_key(none, Access::user, key), 200);
        EXPECT_EQ(with_key(none, Access::admin, key), 200);
        EXPECT_EQ(with_key(user, Access::user, key), key == "u" ? 200 : 401);
        EXPECT_EQ(with_key(user, Access::admin, key), key == "u" ? 200 : 401);
        EXPECT_EQ(with_key(admin, Access::user, key), 200);
        EXPECT_EQ(with_key(admin, Access::admin, key), key == "a" ? 200 : 401);
        EXPECT_EQ(with_key(both, Access::user, key), key == "u" || key == "a" ? 200 : 401);
        EXPECT_EQ(with_key(both, Access::admin, key), key == "a" ? 200 : 401);
    }
}

TEST(Access, TheSchemeIsBearerInAnyCase) {
    const AccessRules rules{"key", ""};
    EXPECT_EQ(status(rules, Access::user, {.authorization = "bearer key"}), 200);
    EXPECT_EQ(status(rules, Access::user, {.authorization = "Basic key"}), 401);
    EXPECT_EQ(status(rules, Access::user, {.authorization = "key"}), 401);
}

TEST(Access, SameKey) {
    EXPECT_TRUE(same_key("abc", "abc"));
    for (const char* other : {"", "ab", "abd", "abcabc", "abca", "Abc"})
        EXPECT_FALSE(same_key(other, "abc")) << other;
    EXPECT_FALSE(same_key("a", ""));
}

TEST(Access, OnALoopbackAddressOtherNamesAreRefused) {
    const AccessRules rules{"", "", true};
    for (const char* host : {"localhost", "LOCALHOST:8", "127.0.0.1:30000", "127.8.0.1", "[::1]:30000", ""})
        EXPECT_EQ(status(rules, Access::user, {.host = host}), 200) << host;
    for (const char* host :
         {"evil.example", "evil.example:30000", "localhost.evil.example", "10.0.0.1", "[::2]", "["})
        EXPECT_EQ(status(rules, Access::open, {.host = host}), 403) << host;
    EXPECT_EQ(status({}, Access::user, {.host = "engine.cluster"}), 200);  // it listens to others
}

TEST(Access, OnALoopbackAddressPagesOfOthersAreRefused) {
    const AccessRules rules{"", "", true};
    const std::string_view host = "localhost:30000";
    EXPECT_EQ(status(rules, Access::user, {.host = host, .origin = "http://localhost:30000"}), 200);
    for (const char* origin : {"http://localhost:8080", "http://evil.example", "null", "https://"})
        EXPECT_EQ(status(rules, Access::open, {.host = host, .origin = origin}), 403) << origin;
}

}  // namespace
}  // namespace tandem::http
