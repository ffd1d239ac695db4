// Sending weights to checkpoint-engine's workers: what they are told, and what becomes of them when somebody fails.
#include "engine_adapter/checkpoint_engine/sender.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <list>

#include "common/error.h"
#include "engine_adapter/checkpoint_engine/messages.h"
#include "engine_adapter/checkpoint_engine/socket_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/checkpoint_engine/worker.h"

namespace tandem::engine::checkpoint_engine {
namespace {

using test::soon;

namespace fs = std::filesystem;
using nlohmann::json;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kDevices{"GPU-0a1b2c3d", "GPU-4e5f6071"};
const std::vector<BucketTensor> kTensors{{"a.weight", {2, 3}, DType::bfloat16, 0},
                                         {"b", {}, DType::float32, 256}};

TorchCudaMemory memory(char handle) {
    return {"", std::string(64, handle), 1024, 4096, "/none", 0};
}

class CheckpointEngine : public ::testing::Test {
  protected:
    CheckpointEngine() {
        fs::remove_all(folder);
        fs::create_directory(folder);
    }
    ~CheckpointEngine() override {
        workers.clear();
        fs::remove_all(folder);
    }

    SenderOptions options(std::vector<std::string> devices = kDevices) {
        return {"sglang://host:1", std::move(devices), [this] { return returned.load(); }, folder};
    }
    Worker& worker(const Sender& sender, std::size_t device, Worker::Answer answer) {
        return workers.emplace_back(sender.zmq_handles().at(kDevices[device]), std::move(answer));
    }
    bool empty() const { return fs::is_empty(folder); }

    const fs::path folder = fs::temp_directory_path() / fmt::format("sender_test_{}", ::getpid());
    std::atomic<bool> returned = false;  // the server's call
    std::list<Worker> workers;
};

TEST_F(CheckpointEngine, BothVersionsAreToldTheSame) {
    std::vector<json> heard;
    {
        Sender sender(options());
        Worker& older = worker(sender, 0, Worker::of_version(false));
        Worker& newer = worker(sender, 1, Worker::of_version(true));
        sender.open(std::vector{memory('h'), memory('i')}, soon());
        sender.load(kTensors, soon());
        sender.load({}, soon());
        std::thread call([&] {
            older.join();
            newer.join();
            returned = true;
        });
        sender.end(soon());
        call.join();
        EXPECT_EQ(older.join().size(), 4U);
        heard = newer.join();
    }
    ASSERT_EQ(heard.size(), 5U);
    const json& arguments = heard[0].at(1);
    EXPECT_EQ(heard[0].at(0), (json{{"global", "torch.multiprocessing.reductions.rebuild_cuda_tensor"}}));
    ASSERT_EQ(arguments.size(), 15U);
    EXPECT_EQ(arguments[1].at("arguments"), json::parse("[[1024]]"));
    EXPECT_EQ(arguments[5], (json{{"global", "torch.uint8"}}));
    EXPECT_EQ(arguments[6], 0);  // the worker puts its own in its place
    const auto handle = arguments[7].get_binary();
    EXPECT_EQ(std::string(handle.begin(), handle.end()), std::string(64, 'i'));
    EXPECT_EQ(arguments[8], 1024);
    EXPECT_EQ(arguments[9], 4096);
    const json size{{"call", "torch.Size"}, {"arguments", json::parse("[[2, 3]]")}};
    ASSERT_EQ(heard[1].size(), 2U);
    EXPECT_EQ(heard[1][0], (json{{"name", "a.weight"},
                                 {"dtype", {{"global", "torch.bfloat16"}}},
                                 {"shape", size},
                                 {"offset", 0}}));
    EXPECT_EQ(heard[1][1].at("offset"), 256);
    EXPECT_EQ(heard[2], json::array());
    EXPECT_TRUE(heard[3].is_null() && heard[4].is_null());
    EXPECT_TRUE(empty());
}

TEST_F(CheckpointEngine, SocketsAreForThisUserOnly) {
    const Sender sender(options());
    ASSERT_EQ(sender.zmq_handles().size(), 2U);
    for (const auto& [device, address] : sender.zmq_handles()) {
        ASSERT_THAT(address, ::testing::StartsWith("ipc:///"));
        const fs::path file = address.substr(6);
        EXPECT_TRUE(fs::is_socket(file));
        EXPECT_EQ(fs::status(file.parent_path()).permissions(), fs::perms::owner_all);
    }
    EXPECT_THROW(Sender({"s", {"GPU-a", "GPU-a"}, [] { return false; }, folder}), InvalidArgument);
    returned = true;  // nobody is to be told
}

TEST_F(CheckpointEngine, WhyABufferCannotBeOpened) {
    Sender sender(options());
    Worker& good = worker(sender, 0, Worker::of_version(true));
    Worker& bad = worker(sender, 1, [](const json& message) -> std::optional<std::string> {
        if (Worker::is_failure(message)) return std::nullopt;
        return "Traceback (most recent call last):\n  File …\nRuntimeError: CUDA error: invalid "
               "\x1b[31mhandle\n";
    });
    EXPECT_THAT(error_of([&] {
                    sender.open(std::vector{memory('h'), memory('i')}, soon());
                }),
                AllOf(HasSubstr("sglang://host:1's worker on GPU-4e5f6071"), HasSubstr("opening the buffer"),
                      HasSubstr("RuntimeError: CUDA error: invalid \\x1b[31mhandle"),
                      ::testing::Not(HasSubstr("Traceback"))));
    EXPECT_TRUE(Worker::is_failure(bad.join().back()));
    EXPECT_TRUE(Worker::is_failure(good.join().back()));
    EXPECT_THROW(sender.load(kTensors, soon()), InvalidArgument);  // over
}

TEST_F(CheckpointEngine, AFailedLoadEndsAll) {
    {
        Sender sender(options());
        Worker& good = worker(sender, 0, Worker::of_version(true));
        Worker& bad = worker(sender, 1, [](const json& message) -> std::optional<std::string> {
            if (Worker::is_failure(message)) return std::nullopt;
            return message.is_array() && message[0].is_object() && message[0].contains("name")
                       ? "KeyError: 'b'"
                       : "";
        });
        sender.open(std::vector{memory('h'), memory('i')}, soon());
        EXPECT_THAT(
            error_of([&] { sender.load(kTensors, soon()); }),
            AllOf(HasSubstr("loading bucket 0"), HasSubstr("GPU-4e5f6071"), HasSubstr("KeyError: 'b'")));
        const json told = good.join().back();
        ASSERT_TRUE(Worker::is_failure(told));
        EXPECT_THAT(told.at("arguments")[0].get<std::string>(), HasSubstr("KeyError: 'b'"));
        EXPECT_TRUE(Worker::is_failure(bad.join().back()));
    }
    EXPECT_TRUE(empty());
}

TEST_F(CheckpointEngine, Deadlines) {
    {
        Sender sender(options());
        worker(sender, 0, Worker::of_version(true));
        try {
            sender.open(std::vector{memory('h'), memory('i')}, Deadline::after_ms(300));
            FAIL() << "one has not connected";
        } catch (const DeadlineExceeded& error) {
            EXPECT_EQ(error.peer(), "sglang://host:1's worker on GPU-4e5f6071");
            EXPECT_THAT(error.what(), HasSubstr("it has not connected"));
        }
    }
    EXPECT_FALSE(empty());  // for the worker that may still come
    {
        Sender sender(options({kDevices[0]}));
        Worker& slow = worker(sender, 0, [](const json& message) -> std::optional<std::string> {
            if (Worker::is_failure(message)) return std::nullopt;
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
            return "";
        });
        EXPECT_THAT(error_of([&] { sender.open(std::vector{memory('h')}, Deadline::after_ms(200)); }),
                    AllOf(HasSubstr("GPU-0a1b2c3d"), HasSubstr("no answer")));
        EXPECT_TRUE(Worker::is_failure(slow.join().back()));  // told behind its answer
    }
}

TEST_F(CheckpointEngine, TheServersCall) {
    {
        Sender sender(options({kDevices[0]}));
        returned = true;
        EXPECT_THAT(error_of([&] { sender.open(std::vector{memory('h')}, soon()); }),
                    HasSubstr("the server's call has returned before its end"));
    }
    SenderOptions failing = options({kDevices[0]});
    failing.call_returned = []() -> bool {
        throw TransportError("sglang://host:1", "POST /x", "ImportError");
    };
    {
        Sender sender(failing);
        EXPECT_THAT(error_of([&] { sender.open(std::vector{memory('h')}, soon()); }),
                    HasSubstr("ImportError"));
    }
    EXPECT_TRUE(empty());
}

TEST_F(CheckpointEngine, WhoGivesUpSaysSo) {
    for (const bool newer : {false, true}) {
        for (const bool opened : {false, true}) {
            Worker* one = nullptr;
            {
                Sender sender(options({kDevices[0]}));
                one = &worker(sender, 0, Worker::of_version(newer));
                if (opened) sender.open(std::vector{memory('h')}, soon());
            }
            ASSERT_TRUE(Worker::is_failure(one->join().back()));
            EXPECT_EQ(one->join().size(), newer && !opened ? 2U : opened ? 2U : 1U);
            EXPECT_TRUE(empty());
        }
    }
}

TEST_F(CheckpointEngine, WorkersOfAKilledSenderAreFreed) {
    // What a killed process leaves: a folder, its lock free, and a worker that waits there.
    const fs::path left = folder / "tandem-ce-killed";
    fs::create_directory(left);
    fs::permissions(left, fs::perms::owner_all);
    std::ofstream(left / "lock");
    std::ofstream(left / "server") << "host:1";
    std::ofstream(left / "0.waits").put(' ');
    std::ofstream(left / "1.waits").put(' ');
    Worker begins("ipc://" + (left / "0.sock").string(), Worker::of_version(true));
    Worker loads("ipc://" + (left / "1.sock").string(), [](const json&) { return std::nullopt; });
    const Sender living(options({kDevices[0]}));
    // As each push does, since a worker may take its time to connect.
    ASSERT_TRUE(test::eventually([&] {
        free_waiting_workers("sglang+ipc://host:1", folder);
        return !fs::exists(left);
    }));
    ASSERT_EQ(begins.join().size(), 2U);
    EXPECT_TRUE(Worker::is_failure(begins.join().back()));
    ASSERT_EQ(loads.join().size(), 1U);
    EXPECT_TRUE(Worker::is_failure(loads.join().back()));
    // Those who live keep theirs.
    EXPECT_TRUE(fs::is_socket(living.zmq_handles().begin()->second.substr(6)));
    returned = true;
}

TEST_F(CheckpointEngine, FoldersThatAreLeft) {
    const auto leave = [&](const char* name, fs::perms permissions, std::chrono::minutes age) {
        const fs::path left = folder / name;
        fs::create_directory(left);
        std::ofstream(left / "lock");
        std::ofstream(left / "server") << "host:1";
        std::ofstream(left / "0.waits").put(' ');
        fs::last_write_time(left / "lock", fs::file_time_type::clock::now() - age);
        fs::permissions(left, permissions);
        return left;
    };
    const fs::path young = leave("tandem-ce-young", fs::perms::owner_all, std::chrono::minutes(1));
    const fs::path old = leave("tandem-ce-old", fs::perms::owner_all, std::chrono::minutes(11));
    const fs::path open = leave("tandem-ce-open", fs::perms::all, std::chrono::minutes(11));
    free_waiting_workers("sglang+ipc://host:1", folder);
    EXPECT_TRUE(fs::exists(young));
    EXPECT_FALSE(fs::exists(old));
    const fs::path others = leave("tandem-ce-others", fs::perms::owner_all, std::chrono::minutes(11));
    free_waiting_workers("sglang://host:2", folder);
    EXPECT_TRUE(fs::exists(others));  // of another server
    EXPECT_TRUE(fs::exists(open));    // not one that we make
    free_waiting_workers("sglang://host:1", folder / "nowhere");
}

TEST(CheckpointEngineMessages, WhatDoesNotFit) {
    const std::vector<BucketTensor> outside{{"a", {2}, DType::float32, 8}};
    EXPECT_THROW(bucket_message(outside, 15), InvalidArgument);
    const std::vector<BucketTensor> askew{{"a", {2}, DType::float32, 6}};
    EXPECT_THROW(bucket_message(askew, 64), InvalidArgument);
}

TEST(CheckpointEngineZmq, WhatIsMissingIsNamed) {
    EXPECT_THAT(error_of([] { zmq::load("libzmq-not-there.so.5"); }),
                AllOf(HasSubstr("libzmq-not-there.so.5"), HasSubstr("libzmq5"), HasSubstr("TANDEM_ZMQ")));
    EXPECT_THAT(error_of([] { zmq::load("libc.so.6"); }), HasSubstr("zmq_ctx_new"));
}

}  // namespace
}  // namespace tandem::engine::checkpoint_engine
