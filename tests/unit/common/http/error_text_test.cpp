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
    EXPECT_EQ(message_of("\x1b[2Jgone\r\nnext"), " [2Jgone \nnext");
    EXPECT_EQ(message_of(R"({"error": "\u001b[2Jgone"})"), " [2Jgone");
    EXPECT_EQ(message_of("{\"detail\": [\"\xff\"]}"), "{\"detail\": [\"\xff\"]}") << "not UTF-8: not JSON";
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
