// What the programs' command lines share: help that fits a terminal, and a word for a subcommand that there is not.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "common/wrap.h"

namespace tandem {

// CLI11's own lets long descriptions run on.
class FittingHelp : public CLI::Formatter {
  public:
    std::string make_option_desc(const CLI::Option* option) const override {
        return wrapped(option->get_description(), kTerminalColumns - column_width_);
    }
    std::string make_subcommand(const CLI::App* subcommand) const override {
        std::string line = "  " + subcommand->get_name() + " ";
        line.resize(std::max(line.size(), column_width_), ' ');  // names here are shorter
        return line +
               wrapped(subcommand->get_description(), kTerminalColumns - column_width_, column_width_) + "\n";
    }
    std::string make_description(const CLI::App* app) const override {
        return wrapped(CLI::Formatter::make_description(app), kTerminalColumns);
    }
};

// Before options and subcommands are added, which take it over.
inline void fit_help(CLI::App& app) {
    app.formatter(std::make_shared<FittingHelp>());
}

// Empty: the words were no wrong subcommand.
inline std::string wrong_subcommand(const CLI::App& app) {
    const CLI::App* last = &app;  // of those that were parsed
    while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
    std::string words, known;
    for (const CLI::App* level = &app; level != nullptr && words.empty();
         level = level == last ? nullptr : last) {
        for (const std::string& word : level->remaining()) words += (words.empty() ? "" : " ") + word;
    }
    for (const CLI::App* one :
         last->get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
        known += (known.empty() ? "" : ", ") + one->get_name();
    if (words.empty() || words.starts_with('-') || known.empty()) return {};
    return fmt::format("there is no subcommand '{}'; there are {}", words.substr(0, words.find(' ')), known);
}

// Prints help, or what is wrong; returns the program's exit code: 0, or 2 for bad usage.
inline int end_of_parse(const CLI::App& app, const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
        if (const std::string wrong = wrong_subcommand(app); !wrong.empty())
            return app.exit(CLI::RequiredError(wrong, CLI::ExitCodes::RequiredError)) == 0 ? 0 : 2;
    }
    return app.exit(error) == 0 ? 0 : 2;
}

}  // namespace tandem
