// tandem-engine: the engine that ships with Tandem. Exit codes: 0 ok, 1 failed, 2 bad usage or input.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/main/commands.h"

int main(int argc, char** argv) {
    tandem::set_up_logging("engine");
    CLI::App app("The inference engine that ships with Tandem", "tandem-engine");
    app.require_subcommand(1);
    tandem::engine::ServeOptions options;
    tandem::engine::add_serve(app, options);
    tandem::engine::TokenizeOptions tokenize_options;
    tandem::engine::add_tokenize(app, tokenize_options);
    try {
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tandem-engine: %s\n", error.what());
        return tandem::exit_code(tandem::to_status(error).code);
    }
}
