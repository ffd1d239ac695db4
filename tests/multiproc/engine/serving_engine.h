// A tandem-engine that serves a tiny model in a process of its own, and what tests ask of it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/http/client.h"
#include "engine_adapter/connect.h"
#include "tests/multiproc/engine/program.h"
#include "tests/support/soon.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {

using test::soon;

// The transfer of all of a tensor, which lies at `offset` of region 0.
inline Transfer whole_tensor(std::size_t index, const TensorInfo& info, std::size_t offset) {
    const std::size_t elements = tensor_bytes(info) / dtype_size(info.dtype);
    return {static_cast<std::uint32_t>(index), 0, 0, info.dtype, 1, elements, offset, 0, 0, 0};
}

class ServingEngine : public testing::Test {
  protected:
    explicit ServingEngine(const std::vector<std::string>& more_arguments = {}) {
        write_tiny_model(directory_.path(), tiny_config(), 3);
        std::vector<std::string> arguments = {
            "serve", "--model", directory_.path(), "--listen", "127.0.0.1:0", "--threads", "1"};
        arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
        program_ = std::make_unique<Program>(arguments);
        url_ = program_->url();
        client_ = std::make_unique<http::Client>(url_);
    }
    // Also when the last trainer has just gone.
    std::unique_ptr<Engine> connect() {
        for (int i = 0;; ++i) {
            try {
                return engine::connect(url_, soon());
            } catch (const TransportError&) {
                if (i == 500) throw;
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
    }

    const model::TemporaryDirectory directory_;
    std::unique_ptr<Program> program_;
    std::string url_;
    std::unique_ptr<http::Client> client_;
};

}  // namespace tandem::engine
