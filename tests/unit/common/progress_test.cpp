// Progress off a terminal: plain lines, few of them, the last always there.
#include "common/progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>

namespace tandem {
namespace {

std::string written_by(const std::function<void(std::FILE*)>& body) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
    body(file.get());
    std::rewind(file.get());
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    return text;
}

TEST(Progress, PlainLinesOffATerminal) {
    const std::string text = written_by([](std::FILE* out) {
        Progress progress("grpo", 60, out);
        for (int step = 1; step <= 60; ++step) progress.update(step, "reward 0.5");
    });
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;  // the first and the last
    EXPECT_THAT(text, testing::HasSubstr("60/60"));
    EXPECT_THAT(text, testing::HasSubstr("reward 0.5"));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("\033")));
}

TEST(Progress, Seconds) {
    EXPECT_EQ(format_seconds(4.21), "4.2 s");
    EXPECT_EQ(format_seconds(185), "3 min 05 s");
    EXPECT_EQ(format_seconds(3720), "1 h 02 min");
}

}  // namespace
}  // namespace tandem
