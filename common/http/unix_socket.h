// A Unix socket as a server's address: a file that only this user may open.
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/file_descriptor.h"

namespace tandem::http {

// Listens at `path`, mode 0600. A file that an ended server has left is taken over; one where somebody answers, or that
// is no socket, is not. Throws ConfigError.
class ListeningFile {
  public:
    explicit ListeningFile(const std::string& path);
    ~ListeningFile();  // removes the file, unless another has taken its place
    ListeningFile(const ListeningFile&) = delete;
    ListeningFile& operator=(const ListeningFile&) = delete;

    int take_descriptor() { return socket_.release(); }  // the caller closes it

  private:
    std::string path_;
    FileDescriptor socket_;
    struct stat made_ {};
};

}  // namespace tandem::http
