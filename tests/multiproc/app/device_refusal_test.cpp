// What a GPU refuses to share between processes ends a run with a clear word, on every rank, within its
// deadline: memory without a handle (VMM), a process of another user, a GPU without peer access.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kLimit = std::chrono::seconds(60);  // run.deadline_s three times: a busy machine

class Refusal : public testing::Test {
  protected:
    // A run that fails while it begins; what it says.
    std::string failure(std::vector<std::string> values, const std::string& refused) const {
        for (const char* value : {"sft.steps=1", "grpo.steps=1", "device=cuda", "run.deadline_s=20",
                                  "engine.deadline_s=15", "sync.deadline_s=10"})
            values.emplace_back(value);
        std::vector<std::string> environment{"TANDEM_EMULATED_GPUS=1"};
        if (!refused.empty()) environment.push_back("TANDEM_EMULATED_IPC=" + refused);
        Program program(tiny_run(folder.path(), values), environment);
        EXPECT_TRUE(eventually([&] { return !program.children().empty() || !program.running(); }));
        const auto children = program.children();
        EXPECT_EQ(program.wait(kLimit), 1);
        expect_all_end(children);
        EXPECT_FALSE(std::filesystem::exists(folder / "tiny"));
        return program.err();
    }
    Folder folder;
};

// An engine of its own on the emulated GPU, with what it refuses.
class EngineBeside {
  public:
    explicit EngineBeside(const std::string& refused) {
        Program model(tiny_run(folder_.path(), {"sft.steps=1", "grpo.steps=0", "mesh.dp=1", "mesh.cp=1"}));
        EXPECT_EQ(model.wait(), 0) << model.err();
        std::vector<std::string> environment{"TANDEM_EMULATED_GPUS=1"};
        if (!refused.empty()) environment.push_back("TANDEM_EMULATED_IPC=" + refused);
        const std::string ready = folder_ / "ready";
        program_ = std::make_unique<Program>(
            std::vector<std::string>{"tandem-engine", "serve", "--model", folder_ / "tiny/checkpoint",
                                     "--listen", "127.0.0.1:0", "--device", "cuda", "--ready-file", ready},
            environment);
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(ready); })) << program_->err();
        url_ = read_file(ready);
        url_.erase(url_.find_last_not_of('\n') + 1);
    }
    const std::string& url() const { return url_; }
    bool running() { return program_->running(); }

  private:
    Folder folder_;
    std::unique_ptr<Program> program_;
    std::string url_;
};

// The engine opens what it is offered; the ranks do not open each other's memory when they first gather.
TEST_F(Refusal, BetweenRanks) {
    EngineBeside engine("");
    const std::vector<std::string> two{"mesh.dp=2", "mesh.cp=1", "sync.mode=direct",
                                       "engine.url=" + engine.url()};
    const std::string peer = failure(two, "peer");
    EXPECT_THAT(peer, AllOf(HasSubstr("of another process cannot be opened on cuda:0"),
                            HasSubstr("no peer access"), HasSubstr("run both processes on one GPU")));
    EXPECT_THAT(peer, Not(HasSubstr("sync set-up failed")));
    EXPECT_THAT(failure(two, "user"),
                AllOf(HasSubstr("runs as another user"), HasSubstr("run both as one user")));
    EXPECT_TRUE(engine.running());
}

// One rank shares nothing with peers: it is the engine that is to open its memory.
TEST_F(Refusal, BetweenTrainerAndEngine) {
    for (const char* mode : {"gather", "direct", "alias"}) {
        SCOPED_TRACE(mode);
        const std::vector<std::string> one{"mesh.dp=1", "mesh.cp=1", std::string("sync.mode=") + mode};
        EXPECT_THAT(failure(one, "peer"),
                    AllOf(HasSubstr("sync set-up failed"), HasSubstr("no peer access")));
        EXPECT_THAT(failure(one, "vmm"),
                    AllOf(HasSubstr("sync set-up failed"), HasSubstr("cannot be shared")));
    }
    EXPECT_THAT(failure({"mesh.dp=1", "mesh.cp=1", "sync.mode=direct"}, "user"),
                AllOf(HasSubstr("sync set-up failed"), HasSubstr("runs as another user")));
}

// Several ranks that reach each other, and an engine that reaches none of them: all ranks hear why.
TEST_F(Refusal, OfTheEngineAlone) {
    EngineBeside engine("peer");
    for (const char* mode : {"gather", "direct", "alias"}) {
        SCOPED_TRACE(mode);
        EXPECT_THAT(failure({"mesh.dp=2", "mesh.cp=1", std::string("sync.mode=") + mode,
                             "engine.url=" + engine.url()},
                            ""),
                    AllOf(HasSubstr("sync set-up failed"), HasSubstr("no peer access")));
        EXPECT_TRUE(engine.running());
    }
}

// An engine that somebody else has started on the trainer's GPU: only NCCL's group finds out.
TEST_F(Refusal, OfNcclOnOneGpu) {
    EngineBeside engine("");
    EXPECT_THAT(failure({"mesh.dp=2", "mesh.cp=1", "sync.transport=nccl", "engine.url=" + engine.url()}, ""),
                AllOf(HasSubstr("sync set-up failed"), HasSubstr("NCCL refuses two ranks on one GPU"),
                      HasSubstr("cuda_ipc")));
    EXPECT_TRUE(engine.running());
}

}  // namespace
}  // namespace tandem::test
