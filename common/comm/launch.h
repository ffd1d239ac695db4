// Where ranks come from. Three ways to the same world communicator:
//   RankProcesses             a parent starts the ranks (fork + exec of a command line) and watches over them
//   connect_from_environment  this process is a rank: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//                             (torchrun, Slurm) say which, or what RankProcesses set
//   run_threads               ranks as threads of this process, for tests and inspection
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem::comm {

struct LaunchOptions {
    int world_size = 1;
    std::vector<std::string> command;      // argv of a rank
    std::vector<std::string> environment;  // "KEY=value", added to the parent's
    // After one rank ends badly the others get this long to end on their own, then SIGTERM, then SIGKILL.
    std::chrono::milliseconds grace{3000};
    std::size_t segment_bytes =
        0;  // virtual bytes of each rank's shared heap; 0: a default from the machine's memory
};

struct RankExit {
    int rank = 0;
    int exit_code = 0;   // when it exited
    int signal = 0;      // when a signal ended it
    bool first = false;  // ended badly before any other
};

struct LaunchResult {
    std::vector<RankExit> ranks;
    // 0 when every rank returned 0; else the exit code of the first that failed (1 for a signal).
    int exit_code = 0;
    std::string message;  // "rank 2 was killed by signal 9 (Killed)"; empty when all went well
};

// A running set of rank processes. Children die with the parent (PR_SET_PDEATHSIG). Destroying it ends what
// still runs.
class RankProcesses {
  public:
    explicit RankProcesses(const LaunchOptions& options);
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;
    RankProcesses& operator=(const RankProcesses&) = delete;

    // Blocks until every rank has ended. When one ends badly: marks the job aborted, so that collectives of
    // the others throw at once naming that rank, then applies `grace`. `keep_going` is asked about every 50
    // ms; when it returns a non-empty reason ("engine died"), the job is aborted with that reason.
    LaunchResult wait(const std::function<std::string()>& keep_going = {});
    void terminate(const std::string& reason);
    std::vector<int> pids() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct RankEnvironment {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
};

bool launched_as_rank();  // RANK and WORLD_SIZE are set
RankEnvironment rank_environment();

// The world communicator of this rank: backend ipc when all ranks are on one host, gloo when they are on
// several, or what TANDEM_COMM says.
std::shared_ptr<Communicator> connect_from_environment(Deadline deadline);

// The world communicator for a GPU, which is this rank's: nccl where every rank has a GPU of its own and NCCL
// can be loaded, else `world` itself, whose backend ipc moves GPU memory between ranks of one host, also of
// one GPU. TANDEM_COMM = nccl or ipc decides. Of the CPU: `world`. Collective. Throws ConfigError saying what
// is not possible.
std::shared_ptr<Communicator> for_device(std::shared_ptr<Communicator> world, Device device);

// A communicator of one rank.
std::shared_ptr<Communicator> solo();

// This thread alone, which only counts (common/device/counting.h), as `rank` of `size`: calls are checked and return at
// once, and what they would have received is as it was. Its memory() is the thread's. Splits give more of the same.
std::shared_ptr<Communicator> silent(int rank, int size);

// Runs body(world) on `world_size` threads and joins them; rethrows the first exception after aborting the
// others.
void run_threads(int world_size, const std::function<void(std::shared_ptr<Communicator>)>& body);

}  // namespace tandem::comm
