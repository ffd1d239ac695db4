#include "common/chart/table.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/chart/frame.h"
#include "common/chart/text.h"

namespace tandem::chart {
namespace {

std::string drawn(const Cell& cell) {
    const std::string style =
        cell.heat < 0 ? "" : fmt::format(" style='--heat:{:.0f}%'", 6 + 60 * std::clamp(cell.heat, 0.0, 1.0));
    return fmt::format("<td{}{}>{}</td>", cell.best ? " class='best'" : "", style, escape_html(cell.text));
}

}  // namespace

std::string table_card(const Table& table) {
    std::string body = "<div class='wide'><table><thead><tr>";
    for (const std::string& name : table.header)
        body += fmt::format("<th scope='col'>{}</th>", escape_html(name));
    body += "</tr></thead><tbody>";
    for (const auto& row : table.rows) {
        body += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i)
            body += i == 0 ? fmt::format("<th scope='row'>{}</th>", escape_html(row[i].text)) : drawn(row[i]);
        body += "</tr>";
    }
    return card(table.title, table.note, body + "</tbody></table></div>");
}

}  // namespace tandem::chart
