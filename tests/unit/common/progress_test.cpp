// Progress on terminals of several widths; off them: plain lines, few of them, the last always there.
#include "common/progress.h"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/file_descriptor.h"
#include "common/wrap.h"

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

// What a terminal of so many columns is sent, each time that its line is written anew.
std::vector<std::string> lines_on_a_terminal(unsigned short columns, const char* kind = "xterm") {
    ::setenv("TERM", kind, 1);
    const FileDescriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY));
    EXPECT_EQ(::grantpt(terminal.get()) + ::unlockpt(terminal.get()), 0);
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(::ptsname(terminal.get()), "w"),
                                                        std::fclose);
    const winsize size{.ws_row = 25, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(terminal.get(), TIOCSWINSZ, &size), 0);
    {
        Progress progress("grpo", 80, out.get());
        for (int step = 1; step <= 2; ++step) {
            progress.update(40 * step, "reward 0.928  length 2.9  entropy 0.08  größer");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    std::string text(65536, '\0');
    text.resize(static_cast<std::size_t>(::read(terminal.get(), text.data(), text.size())));
    std::vector<std::string> lines;
    for (std::size_t at = 0; (at = text.find("\r\033[K", at)) != std::string::npos;) {
        at += 4;
        lines.push_back(text.substr(at, text.find_first_of("\r\n", at) - at));
    }
    return lines;
}

TEST(Progress, IsOneLineOfATerminal) {
    for (const unsigned short columns : {200, 80, 60, 40, 12}) {
        const std::vector<std::string> lines = lines_on_a_terminal(columns);
        ASSERT_EQ(lines.size(), 2u) << columns;
        for (const std::string& line : lines) {
            EXPECT_LT(characters(line), columns) << line;
            EXPECT_THAT(line, testing::StartsWith("grpo  "));
            EXPECT_EQ(line.find("█") != std::string::npos, columns >= 80) << line;
        }
        EXPECT_EQ(lines[0].ends_with("größer"), columns >= 80) << lines[0];
    }
}

TEST(Progress, IsPlainWhereATerminalIsDumb) {
    EXPECT_THAT(lines_on_a_terminal(80, "dumb"), testing::IsEmpty());
}

TEST(Progress, Seconds) {
    EXPECT_EQ(format_seconds(4.21), "4.2 s");
    EXPECT_EQ(format_seconds(185), "3 min 05 s");
    EXPECT_EQ(format_seconds(3720), "1 h 02 min");
}

}  // namespace
}  // namespace tandem
