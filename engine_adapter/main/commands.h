// The subcommands of tandem-engine: each function adds one with its flags, which fill `options`, and runs it
// when the command line asks for it. `options` must outlive the app.
#pragma once

#include <CLI/CLI.hpp>

#include "engine_adapter/embedded/serve.h"
#include "engine_adapter/main/tokenize.h"

namespace tandem::engine {

void add_serve(CLI::App& app, ServeOptions& options);
void add_tokenize(CLI::App& app, TokenizeOptions& options);

}  // namespace tandem::engine
