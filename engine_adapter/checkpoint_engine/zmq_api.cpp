#include "engine_adapter/checkpoint_engine/zmq_api.h"

#include "common/error.h"
#include "common/shared_library.h"

namespace tandem::engine::zmq {

Api load(const std::string& file) {
    const SharedLibrary library(file);
    if (!library.loaded()) {
        throw Error(
            fmt::format("ZeroMQ cannot be loaded: {}; install it (on Debian and Ubuntu: apt-get install "
                        "libzmq5; on Fedora: dnf install zeromq), or name the file in TANDEM_ZMQ",
                        library.why_not()));
    }
    const auto find = [&](const char* name, auto& function) {
        if (!library.find(name, function))
            throw Error(fmt::format("{} has no {}: libzmq.so.5 is needed", library.file(), name));
    };
    Api api;
    find("zmq_ctx_new", api.ctx_new);
    find("zmq_ctx_term", api.ctx_term);
    find("zmq_socket", api.socket);
    find("zmq_close", api.close);
    find("zmq_bind", api.bind);
    find("zmq_connect", api.connect);
    find("zmq_setsockopt", api.setsockopt);
    find("zmq_getsockopt", api.getsockopt);
    find("zmq_send", api.send);
    find("zmq_recv", api.recv);
    find("zmq_poll", api.poll);
    find("zmq_errno", api.error);
    find("zmq_strerror", api.strerror);
    return api;
}

const Api& loaded() {
    static const Api api =
        load(library_file("TANDEM_ZMQ", "libzmq.so.5"));  // again at the next call when it throws
    return api;
}

}  // namespace tandem::engine::zmq
