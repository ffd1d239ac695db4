// A Unix socket as the server's address: who may open it, whose file is taken over, and what is left.
#include "common/http/unix_socket.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/error.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "tests/support/soon.h"

namespace tandem::http {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class UnixSocket : public testing::Test {
  protected:
    UnixSocket() : folder(fs::temp_directory_path() / ("tandem-socket-" + std::to_string(::getpid()))) {
        fs::remove_all(folder);
        fs::create_directories(folder);
    }
    ~UnixSocket() override { fs::remove_all(folder); }

    std::unique_ptr<Server> serve() const {
        auto server = std::make_unique<Server>(ServerOptions{.listen = "unix:" + path});
        server->route("GET", "/host", [](const Request& r, Responder out) { out.send(200, r.path, "text"); });
        server->start();
        return server;
    }
    std::string refusal() const {
        try {
            serve();
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    }
    static int ask(const std::string& url) {
        return Client(url).request("GET", "/host", "", test::soon()).status;
    }

    fs::path folder;
    std::string path = folder / "engine.sock";
};

TEST_F(UnixSocket, ServesThisUserAndLeavesNoFile) {
    {
        const auto server = serve();
        EXPECT_EQ(server->url(), "unix://" + path);
        EXPECT_TRUE(server->loopback()) << "no key is needed";
        EXPECT_EQ(server->port(), 0);
        EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
        EXPECT_EQ(ask(server->url()), 200);
        EXPECT_EQ(ask("unix:" + path), 200);
    }
    EXPECT_FALSE(fs::exists(path));
    EXPECT_THROW(ask("unix:" + path), TransportError);
}

TEST_F(UnixSocket, AFileThatAnEndedServerLeftIsTakenOver) {
    {
        ListeningFile left(path);
        ::close(left.take_descriptor());
        const fs::path copy = folder / "copy";
        fs::create_hard_link(path, copy);
        fs::rename(copy, folder / "other");
    }
    fs::rename(folder / "other", path);
    EXPECT_EQ(ask(serve()->url()), 200);
}

TEST_F(UnixSocket, AnAnsweringServerAndOtherFilesAreLeftAlone) {
    const auto first = serve();
    EXPECT_THAT(refusal(), HasSubstr("unix:" + path + " is in use"));
    EXPECT_EQ(ask(first->url()), 200);
    first->stop();
    std::ofstream(path) << "precious";
    EXPECT_THAT(refusal(), HasSubstr("is no socket"));
    EXPECT_EQ(fs::file_size(path), 8u);
    path = std::string(200, 'a');
    path.front() = '/';
    EXPECT_THAT(refusal(), HasSubstr("longer than the 107 bytes"));
    path = "/nowhere/engine.sock";
    EXPECT_THAT(refusal(), HasSubstr("cannot be used: No such file"));
}

// A second server that has come to stay keeps its file when the first one ends.
TEST_F(UnixSocket, TheFileOfASuccessorStays) {
    auto first = serve();
    fs::remove(path);
    const auto second = serve();
    first.reset();
    EXPECT_EQ(ask(second->url()), 200);
}

}  // namespace
}  // namespace tandem::http
