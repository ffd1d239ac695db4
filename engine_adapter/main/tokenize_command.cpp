#include "engine_adapter/main/commands.h"

namespace tandem::engine {

void add_tokenize(CLI::App& app, TokenizeOptions& options) {
    CLI::App* tokenize = app.add_subcommand(
        "tokenize", "Converts lines of text to token ids, or back, with the model's tokenizer");
    tokenize->add_option("--model", options.model, "Directory with tokenizer.json")->required();
    tokenize->add_option("--file", options.file, "File with the lines; standard input without it");
    CLI::Option* decode = tokenize->add_flag("--decode", options.decode, "Token ids into text");
    tokenize->add_flag("--no-special-tokens", options.no_special_tokens,
                       "Adds no special tokens to a text; omits them when decoding");
    CLI::Option* chat =
        tokenize->add_flag("--chat", options.chat,
                           "Each line is a conversation for the chat template: a JSON list of "
                           "messages, or an object with messages, tools and the like");
    chat->excludes(decode);
    tokenize
        ->add_flag("--text", options.text, "With --chat: the template's text as a JSON string, not its ids")
        ->needs(chat);
    tokenize
        ->add_option(
            "--template", options.template_name,
            "With --chat: the name of one of the model's chat templates; without it \"tool_use\" where a "
            "conversation has tools and there is one, else \"default\"")
        ->needs(chat);
    tokenize->add_flag("--json", options.json,
                       "Each line in and out is JSON: a string, or a list of ids; so text may hold newlines");
    tokenize->footer(
        "Example:\n"
        "  echo 'Hello, world!' | tandem-engine tokenize --model DIR\n"
        "  echo '[{\"role\": \"user\", \"content\": \"Hello!\"}]' | tandem-engine tokenize --model DIR "
        "--chat");
    tokenize->callback([&options] { engine::tokenize(options); });
}

}  // namespace tandem::engine
