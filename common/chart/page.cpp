#include "common/chart/page.h"

#include <fmt/core.h>

#include "common/chart/style.h"
#include "common/chart/text.h"

namespace tandem::chart {

std::string page(const std::string& title, const std::string& body) {
    return fmt::format(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>{} · Tandem</title>\n"
        "<style>{}</style></head>\n<body><main>\n{}</main></body></html>\n",
        escape_html(title), kPageStyle, body);
}

std::string section(const std::string& title, const std::string& charts) {
    return fmt::format("<h2>{}</h2>\n<section class='charts'>\n{}</section>\n", escape_html(title), charts);
}

std::string tile(const std::string& label, const std::string& value, const std::string& note, Tone tone) {
    const char* kind = tone == Tone::good ? " good" : tone == Tone::bad ? " bad" : "";
    return fmt::format("<div class='tile{}'><h3>{}</h3><strong>{}</strong><small>{}</small></div>", kind,
                       escape_html(label), escape_html(value), escape_html(note));
}

std::string tiles(const std::string& several) {
    return "<section class='tiles'>" + several + "</section>\n";
}

}  // namespace tandem::chart
