// tandem-engine: the engine that ships with Tandem. Exit codes: 0 ok, 1 failed, 2 bad usage or input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/console.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/mapped_files.h"
#include "common/printable.h"
#include "engine_adapter/main/commands.h"

namespace {

// A process's arguments can be read by everybody on its machine: overwrites those that are keys.
void hide_keys(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        for (const std::string option : {"--api-key", "--admin-api-key"}) {
            char* key = nullptr;
            if (word == option && i + 1 < argc) key = argv[i + 1];
            if (word.starts_with(option + "=")) key = argv[i] + option.size() + 1;
            if (key != nullptr) std::memset(key, 'x', std::strlen(key));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    tandem::set_up_logging("engine");
    tandem::model::read_zeros_of_truncated_files();
    CLI::App app("The inference engine that ships with Tandem", "tandem-engine");
    tandem::fit_help(app);
    app.require_subcommand(1);
    app.footer("Example:\n  tandem-engine serve --model runs/quickstart/checkpoint --listen 127.0.0.1:30000");
    tandem::engine::ServeOptions options;
    tandem::engine::add_serve(app, options);
    tandem::engine::TokenizeOptions tokenize_options;
    tandem::engine::add_tokenize(app, tokenize_options);
    try {
        std::vector<std::string> words(argv + 1, argv + argc);
        hide_keys(argc, argv);
        std::reverse(words.begin(), words.end());  // as CLI11 wants them
        app.parse(std::move(words));
        return tandem::end_of_program("tandem-engine", 0);
    } catch (const CLI::ParseError& error) {
        return tandem::end_of_program("tandem-engine", tandem::end_of_parse(app, error));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tandem-engine: %s\n", tandem::printable(error.what()).c_str());
        return tandem::exit_code(tandem::to_status(error).code);
    }
}
