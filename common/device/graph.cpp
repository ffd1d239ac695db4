#include "common/device/graph.h"

#include "common/device/stream_backend.h"
#include "common/error.h"

namespace tandem {

Graph Graph::capture(Stream& stream, const std::function<void()>& record) {
    Graph graph;
    graph.device_ = stream.device();
    graph.work_ = stream.backend().capture(record);
    return graph;
}

void Graph::launch(Stream& stream) const {
    require(recorded(), "a graph that recorded nothing was launched on stream '{}'", stream.name());
    require(stream.device() == device_, "a graph of {} was launched on stream '{}' of {}", to_string(device_),
            stream.name(), to_string(stream.device()));
    stream.backend().replay(work_);
}

}  // namespace tandem
