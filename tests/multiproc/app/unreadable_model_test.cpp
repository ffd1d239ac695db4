// A model's file that cannot be read to its end (cut off while it is mapped, a disk that fails): each program that reads it
// ends with exit code 1 and the file's name. Here it has a hole for which its file system has no room: reading that raises
// SIGBUS, as reading what was cut off does, at the same place each time.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <fstream>

#include "tests/multiproc/app/program.h"
#include "tests/support/small_disk.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class UnreadableModel : public testing::Test {
  protected:
    // `model_` is what `whole_` is, but for its weights, of which the header alone is there.
    UnreadableModel() {
        Program program(tiny_run(folder_.path(), {"mesh.dp=1", "mesh.cp=1", "sft.steps=1", "grpo.steps=0"}));
        EXPECT_EQ(program.wait(), 0) << program.err();
        fs::copy(whole_, model_);
        const std::string weights = read_file(whole_ + "/model.safetensors");
        std::uint64_t header = 0;
        std::memcpy(&header, weights.data(), sizeof header);
        std::ofstream(file_, std::ios::binary | std::ios::trunc) << weights.substr(0, 8 + header);
        fs::resize_file(file_, weights.size());
        disk_.fill();
    }

    Folder folder_;
    const SmallDisk disk_{folder_ / "disk", std::size_t{8} << 20};
    const std::string whole_ = folder_ / "tiny/checkpoint", model_ = disk_ / "model";
    const std::string file_ = model_ + "/model.safetensors";
};

TEST_F(UnreadableModel, EndsEachProgramByName) {
    Program engine({"tandem-engine", "serve", "--model", model_, "--listen", "127.0.0.1:0"});
    EXPECT_EQ(engine.wait(), 1) << engine.err();
    EXPECT_THAT(engine.err(), HasSubstr("tandem-engine: " + file_ + " was written to or cut off"));

    Program train(tiny_run(folder_ / "runs", {"model.path=" + model_}));
    EXPECT_EQ(train.wait(), 1) << train.err();
    EXPECT_THAT(train.err(), HasSubstr("[rank 0] " + file_ + " was written to or cut off"));
}

TEST_F(UnreadableModel, IsNotPushedAsZeros) {
    const std::string ready = folder_ / "ready";
    Program engine(
        {"tandem-engine", "serve", "--model", whole_, "--listen", "127.0.0.1:0", "--ready-file", ready});
    ASSERT_TRUE(eventually([&] { return fs::exists(ready); })) << engine.err();
    std::string url = read_file(ready);
    url.erase(url.find_last_not_of('\n') + 1);
    Program push({"tandem-sync", "push", "--model", model_, "--to", url});
    EXPECT_EQ(push.wait(), 1) << push.out() << push.err();
    EXPECT_THAT(push.out(), AllOf(HasSubstr(file_), HasSubstr("FAILED")));
}

}  // namespace
}  // namespace tandem::test
