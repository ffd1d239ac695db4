// `tandem-engine tokenize`: lines of text into token ids, or back, with a model directory's tokenizer.
#pragma once

#include <string>

namespace tandem::engine {

struct TokenizeOptions {
    std::string model;  // directory
    std::string file;   // empty: standard input
    bool decode = false;
    bool no_special_tokens = false;
    bool chat = false;  // lines are conversations
    std::string
        template_name;  // with chat, of a model with several templates; empty: by whether there are tools
    bool text = false;  // with chat: the template's text instead of ids
    bool json = false;
};

// A line in, a line out, on standard output. Throws ConfigError for whatever the user got wrong, naming the
// line.
void tokenize(const TokenizeOptions& options);

}  // namespace tandem::engine
