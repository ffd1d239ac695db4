// A folder of socket files, one for each worker, that only this user can open; and what is left of those whose process
// was killed: workers that wait there for ever.
//
//   ROOT/tandem-ce-XXXXXX/server    whose workers these are, "HOST:PORT"
//                        /N.sock    where worker N connects
//                        /N.waits   there until worker N has been told that it is over
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string_view>

#include "common/owned_folder.h"
#include "engine_adapter/checkpoint_engine/request_socket.h"

namespace tandem::engine::checkpoint_engine {

class SocketFolder {
  public:
    // server: a URL of any scheme. Throws SystemError.
    SocketFolder(const std::filesystem::path& root, std::string_view server, std::size_t workers);
    ~SocketFolder();  // stays where a worker has not been told
    SocketFolder(const SocketFolder&) = delete;
    SocketFolder& operator=(const SocketFolder&) = delete;

    std::filesystem::path socket_file(std::size_t worker) const;
    void told(std::size_t worker) noexcept;

  private:
    OwnedFolder folder_;
    std::set<std::size_t> waiting_;
};

// Tells the workers of `server` that wait in `root` for a process of this user's that has ended: half a second for each of
// them. One that could not be told stays for ten minutes, for the next call. Needs libzmq where there is such a folder.
void free_waiting_workers(std::string_view server,
                          const std::filesystem::path& root = std::filesystem::temp_directory_path());

}  // namespace tandem::engine::checkpoint_engine
