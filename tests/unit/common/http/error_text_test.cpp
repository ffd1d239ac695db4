// What is said of an answer that is no success, by bodies as servers of this field send them.
#include "common/http/error_text.h"

#include <gmock/gmock.h>

namespace tandem::http {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(ErrorText, IsTheMessageOfABodyInAKnownForm) {
    EXPECT_EQ(message_of(R"({"error": {"message": "no room", "code": 503}})"), "no room");  // ours, OpenAI's
    EXPECT_EQ(message_of(R"({"error": "no room"})"), "no room");
    EXPECT_EQ(message_of(R"({"success": false, "message": "no room"})"), "no room");  // SGLang's
    EXPECT_EQ(message_of(R"({"detail": "Not Found"})"), "Not Found");                 // FastAPI's
    EXPECT_EQ(message_of(R"({"detail": [{"loc": ["body"]}]})"), R"([{"loc":["body"]}])");
}

TEST(ErrorText, IsTheBeginningOfAnyOther) {
    EXPECT_EQ(message_of("<html>no</html>"), "<html>no</html>");
    EXPECT_EQ(message_of("[1, 2"), "[1, 2");
    EXPECT_THAT(message_of(std::string(5000, 'x')), SizeIs(300));
    EXPECT_EQ(message_of(""), "");
}

TEST(ErrorText, HasNoControlCharacters) {
    EXPECT_EQ(message_of("\x1b[2Jgone\r\nnext"), "\\x1b[2Jgone\\x0d\n  next");
    EXPECT_EQ(message_of(R"({"error": "\u001b[2Jgone"})"), "\\x1b[2Jgone");
    EXPECT_EQ(message_of("{\"detail\": [\"\xff\"]}"), "{\"detail\": [\"\\xff\"]}") << "not UTF-8: not JSON";
    // A title of the terminal, C1 controls, text that runs backwards, and a row that looks like one of ours.
    EXPECT_EQ(message_of(R"({"error": "\u009b31m\u202evllm\nvllm://prod:8000  updated"})"),
              "\\u{009b}31m\\u{202e}vllm\n  vllm://prod:8000  updated");
}

// The library copies and prints by recursion: 100,000 levels were the end of the process.
TEST(ErrorText, OfADeepOrWideBodyIsItsBeginning) {
    for (const std::string& deep :
         {R"({"detail":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}",
          R"({"error":)" + std::string(1'000'000, '['), std::string(3'000'000, '{'),
          R"({"detail":[)" + std::string(10'000'000, ',') + "]}"}) {
        EXPECT_EQ(message_of(deep), deep.substr(0, 300));
        for (const int status : {302, 400, 401, 404, 422, 500, 503})
            EXPECT_THAT(error_text({.status = status, .body = deep}), HasSubstr(std::to_string(status)));
    }
}

TEST(ErrorText, SaysTheStatusAndNothingOfAnEmptyBody) {
    EXPECT_EQ(error_text({.status = 404, .body = R"({"detail":"Not Found"})"}), "HTTP 404: Not Found");
    EXPECT_EQ(error_text({.status = 500}), "HTTP 500");
}

TEST(ErrorText, SaysWhereARedirectLeads) {
    EXPECT_EQ(error_text({.status = 302, .location = "http://other:8000/"}),
              "HTTP 302: a redirect to http://other:8000/, which is not followed: name that server");
}

}  // namespace
}  // namespace tandem::http
